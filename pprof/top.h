/* The functions of a profile by the weight of one sample type. */
#ifndef CLP_PPROF_TOP_H
#define CLP_PPROF_TOP_H

#include "pprof/profile.h"

#include <stdio.h>

struct clp_top_row {
    const char *name; /* owned by the profile */
    int64_t flat;     /* samples whose leaf it is */
    int64_t cum;      /* samples that have it anywhere, each once */
};

struct clp_top {
    struct clp_top_row *rows; /* by flat, then cum, then name; functions of one name are one row */
    size_t count;
    int64_t total;    /* of all samples, in the sample type's unit */
    const char *type; /* owned by the profile */
    const char *unit;
};

/* `value`: index of the sample type. 0, -EINVAL, -ENOMEM. The profile must outlive the table. */
int clp_top_make(const struct clp_profile *p, size_t value, struct clp_top *ret) CLP_MUST_USE;
void clp_top_done(struct clp_top *t);
/* At most `max_rows` rows, with times in readable units. 0, or -EIO when writing failed. */
int clp_top_print(const struct clp_top *t, FILE *out, size_t max_rows) CLP_MUST_USE;

#endif
