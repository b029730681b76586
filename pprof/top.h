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
    int64_t total;    /* of the samples in it, in the sample type's unit */
    int64_t idle;     /* of the samples that were left out */
    const char *type; /* owned by the profile */
    const char *unit;
};

/* `value`: index of the sample type.  Samples labelled wait=idle (a pool's workers without work,
 * the runtime's own threads) are left out: they would stand before everything that is done. 0,
 * -EINVAL, -ENOMEM. The profile must outlive the table. */
int clp_top_make(const struct clp_profile *p, size_t value, struct clp_top *ret) CLP_MUST_USE;
/* The same of all samples. */
int clp_top_make_all(const struct clp_profile *p, size_t value, struct clp_top *ret) CLP_MUST_USE;
void clp_top_done(struct clp_top *t);
/* At most `max_rows` rows, with times in readable units. 0, or -EIO when writing failed. */
int clp_top_print(const struct clp_top *t, FILE *out, size_t max_rows) CLP_MUST_USE;

#endif
