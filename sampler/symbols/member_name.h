/* Members as they are written in the source: accessors, operators, lambdas, local functions,
 * explicit implementations.  Internal to this folder; managed_name.h has the rules. */
#ifndef CLP_SAMPLER_SYMBOLS_MEMBER_NAME_H
#define CLP_SAMPLER_SYMBOLS_MEMBER_NAME_H

#include "sampler/symbols/type_name.h"

struct clp_member {
    struct clp_name_text name;      /* raw */
    struct clp_name_text signature; /* parameter types */
    struct clp_type_tail tail;      /* of its type */
    bool overloaded;
};

/* Returns true when the name already tells the member from its overloads, or stands for a piece
 * of another method, so that no parameter list follows. */
bool clp_member_name_write(struct clp_name_writer *w, const struct clp_member *member);

#endif
