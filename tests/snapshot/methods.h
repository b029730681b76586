/* Methods as both walks can name them: all instantiations, tiers and parts of one method are the
 * same.  Loop thread. */
#ifndef CLP_TESTS_SNAPSHOT_METHODS_H
#define CLP_TESTS_SNAPSHOT_METHODS_H

#include "sampler/inproc/clr.h"

#define CLP_SNAPSHOT_METHODS_MAX 16384u

struct clp_snapshot_method {
    clr_function_id function; /* the first one that was seen of it */
    clr_module_id module;
    uint32_t token;
    bool dynamic;  /* no metadata: told apart by its function alone */
    bool dispatch; /* of the runtime's own exception dispatch in managed code (System.Runtime.EH) */
};

/* The number of a function's method, from 1; 0 for function 0 or when the table is full. */
uint32_t clp_snapshot_method_of(clr_function_id function);
const struct clp_snapshot_method *clp_snapshot_method(uint32_t number);
/* "Ns.Type.Name", in a buffer that the next call writes again. */
const char *clp_snapshot_method_name(uint32_t number);

#endif
