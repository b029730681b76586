/* Methods as both walks can name them: all instantiations, tiers and parts of one method are the
 * same.  Loop thread. */
#ifndef CLP_TESTS_SNAPSHOT_METHODS_H
#define CLP_TESTS_SNAPSHOT_METHODS_H

#include "sampler/inproc/clr.h"

#define CLP_SNAPSHOT_METHODS_MAX 16384u

struct clp_snapshot_method {
    char *name;    /* "Ns.Type.Name" */
    bool dynamic;  /* no metadata: told apart by its function alone */
    bool dispatch; /* of the runtime's own exception dispatch in managed code (System.Runtime.EH) */
    uint64_t stacks; /* that were compared and hold it */
    uint64_t seen;   /* number of the last one of them */
};

/* The number of a function's method, from 1; 0 for function 0 or when the table is full. */
uint32_t clp_snapshot_method_of(clr_function_id function);
/* Number 0 is nobody's: a method without a name. */
struct clp_snapshot_method *clp_snapshot_method(uint32_t number);
uint32_t clp_snapshot_method_count(void);

#endif
