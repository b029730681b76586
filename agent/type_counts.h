/* How many of each type: exceptions of a window, or of a process since it is profiled. All types
 * are counted, so that what is told of the heaviest ones is exact, whenever they came. Beyond
 * CLP_TYPE_COUNTS_MAX of them, or without memory, new types are counted together. */
#ifndef CLP_AGENT_TYPE_COUNTS_H
#define CLP_AGENT_TYPE_COUNTS_H

#include "base/map.h"

#define CLP_TYPE_COUNTS_MAX 4096u       /* as many places of throws as the library keeps apart */
#define CLP_TYPE_COUNTS_SHOWN 24u       /* of them are told by name, and so many are always kept */
#define CLP_TYPE_COUNTS_NAME_BYTES 120u /* NUL included; longer names are cut */

struct clp_type_counts { /* all zero: empty */
    struct clp_map by_name;
    double others; /* of types that found no room, and of those without a name */
};

/* Frees what it holds; it is empty then. */
void clp_type_counts_done(struct clp_type_counts *c);
/* One part in `share` (at least 1) of the names from now on; those that are there stay. */
void clp_type_counts_set_share(struct clp_type_counts *c, unsigned share);
/* `name` is NUL-terminated and cleaned before it is used. */
void clp_type_counts_add(struct clp_type_counts *c, const char *name, double n);
void clp_type_counts_add_all(struct clp_type_counts *c, const struct clp_type_counts *more);

/* The types with the largest counts, the largest first, those of equal counts by name; `others` is
 * the sum of all that are not among them. Names are valid until the next call that changes `c`. */
struct clp_type_counts_top {
    size_t count;
    struct {
        const char *name;
        double n;
    } of[CLP_TYPE_COUNTS_SHOWN];
    double others;
};
void clp_type_counts_top(const struct clp_type_counts *c, struct clp_type_counts_top *ret);

#endif
