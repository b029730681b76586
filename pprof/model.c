#include "pprof/model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading -------------------------------------------------------------------------------- */

const char *clp_model_text(const struct clp_profile *p, uint32_t string)
{
    uint32_t len;
    return clp_seqs_get(&p->strings, string, &len);
}

const struct clp_model_mapping *clp_model_mapping(const struct clp_profile *p, uint32_t id)
{
    return clp_rows_get(&p->mappings, id);
}

const struct clp_model_function *clp_model_function(const struct clp_profile *p, uint32_t id)
{
    return clp_rows_get(&p->functions, id);
}

const struct clp_model_location *clp_model_location(const struct clp_profile *p, uint32_t id)
{
    return clp_rows_get(&p->locations, id);
}

const struct clp_profile_line *
clp_model_lines(const struct clp_profile *p, const struct clp_model_location *l, uint32_t *ret_len)
{
    return clp_seqs_get(&p->lines, l->lines, ret_len);
}

const uint32_t *clp_model_stack(const struct clp_profile *p, uint32_t id, uint32_t *ret_len)
{
    return clp_seqs_get(&p->stacks, id, ret_len);
}

const struct clp_model_label *clp_model_labels(const struct clp_profile *p, uint32_t id,
                                               uint32_t *ret_len)
{
    if (id < p->late_count && p->late_sets[id])
        id = p->late_sets[id];
    return clp_seqs_get(&p->label_sets, id, ret_len);
}

const struct clp_model_sample *clp_model_sample(const struct clp_profile *p, uint32_t at)
{
    return clp_rows_get(&p->samples, at);
}

const struct clp_profile_counts *clp_profile_counts(const struct clp_profile *p)
{
    return &p->counts;
}

size_t clp_profile_value_count(const struct clp_profile *p)
{
    return p->value_count;
}

int clp_profile_value_index(const struct clp_profile *p, const char *type)
{
    for (uint32_t i = 0; i < p->value_count; i++)
        if (strcmp(clp_model_text(p, p->value_types[i].type), type) == 0)
            return (int)i;
    return -ENOENT;
}

static bool all_zero(const double *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (values[i] != 0)
            return false;
    return true;
}

size_t clp_profile_sample_count(const struct clp_profile *p)
{
    return p->samples.len - (all_zero(p->values, p->value_count) ? 1u : 0u);
}

double clp_profile_total(const struct clp_profile *p, size_t value)
{
    return value < p->value_count ? p->totals[value] : 0;
}

/* ---- rounding ------------------------------------------------------------------------------- */

struct remainder {
    double fraction;
    uint32_t at;
};

/* The largest fraction first; equal ones in the order of their samples, so that the result does not
 * depend on the sort. */
static int by_fraction(const void *a, const void *b)
{
    const struct remainder *x = a, *y = b;
    if (x->fraction != y->fraction)
        return x->fraction > y->fraction ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Splits every value into its floor (in `ret`) and its fraction; how many have one. */
static uint32_t split(const struct clp_profile *p, size_t value, int64_t *ret,
                      struct remainder *rests, double *ret_rest)
{
    uint32_t count = 0;
    *ret_rest = 0;
    for (uint32_t i = 0; i < p->samples.len; i++) {
        double v = p->values[(size_t)i * p->value_count + value];
        double whole = floor(v);
        ret[i] = (int64_t)whole;
        if (v > whole) {
            rests[count++] = (struct remainder){.fraction = v - whole, .at = i};
            *ret_rest += v - whole;
        }
    }
    return count;
}

int clp_model_round(const struct clp_profile *p, size_t value, int64_t *ret)
{
    struct remainder *rests = malloc(p->samples.len * sizeof(*rests));
    if (!rests)
        return -ENOMEM;
    double rest;
    uint32_t count = split(p, value, ret, rests, &rest);
    uint32_t up = (uint32_t)llround(rest);
    up = CLP_MIN(up, count);
    qsort(rests, count, sizeof(*rests), by_fraction);
    for (uint32_t i = 0; i < up; i++)
        ret[rests[i].at]++;
    free(rests);
    return 0;
}
