/* How many of each type: exceptions of a window, or of a process since it is profiled. The first
 * CLP_TYPE_COUNTS_MAX types have an entry of their own. */
#ifndef CLP_AGENT_TYPE_COUNTS_H
#define CLP_AGENT_TYPE_COUNTS_H

#include <stddef.h>

#define CLP_TYPE_COUNTS_MAX 24u
#define CLP_TYPE_COUNTS_NAME_BYTES 120u /* NUL included; longer names are cut */

struct clp_type_counts {
    size_t count;
    struct {
        char name[CLP_TYPE_COUNTS_NAME_BYTES];
        double n;
    } of[CLP_TYPE_COUNTS_MAX];
    double others; /* of types beyond, and of those without a name */
};

/* `name` is clean UTF-8. */
void clp_type_counts_add(struct clp_type_counts *c, const char *name, double n);
void clp_type_counts_add_all(struct clp_type_counts *c, const struct clp_type_counts *more);

#endif
