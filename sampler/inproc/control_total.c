#include "sampler/inproc/control_total.h"

#define DEVIATIONS 5.0
#define FACTOR_MIN 1e-6

/* Each object of a class that was met stands for w = s/p bytes. To the variance of the sum of bytes
 * it adds w^2 (1 - p): its bytes times the class's reach, w (1 - p), which is at most the mean.
 *
 * The difference d between the total and the sum is divided by variance, which is an estimate of
 * the sample as the sum is, and goes with it. What is so shifted in the mean is, to the first
 * order, the bytes times reach times (the mean reach - the reach), over the variance: it is taken
 * out. So a class's factor is 1 + reach * (d + reach - mean reach) / variance; their sum is the
 * total. */
static double reach_of(const struct clp_control *c, const struct clp_threshold_totals *t)
{
    if (t->sum <= 0 || t->count <= 0)
        return 0;
    if (!c->random)
        return c->mean;
    double size = t->sum / t->count, p = clp_sampled_chance(size, c->mean);
    return size / p * (1 - p);
}

void clp_control_begin(struct clp_control *c)
{
    c->estimated = c->variance = c->skew = c->shift = c->pull = 0;
    c->scale = 1;
}

void clp_control_add(struct clp_control *c, const struct clp_threshold_totals *t)
{
    double reach = reach_of(c, t);
    c->estimated += t->sum;
    c->variance += t->sum * reach;
    c->skew += t->sum * reach * reach;
}

/* Is `d` within five standard deviations? One sample more than there are is allowed for: of few,
 * too few tell too little of the variance. */
static bool by_chance(const struct clp_control *c, double d)
{
    return d * d <= DEVIATIONS * DEVIATIONS * (c->variance + c->mean * c->mean);
}

/* Is no class's factor negative, whatever its reach? `d` less the mean reach. */
static bool has_room(const struct clp_control *c, double d)
{
    double reach = CLP_MIN(CLP_MAX(-d / 2, 0.0), c->mean);
    return reach * (d + reach) > -c->variance;
}

void clp_control_fit(struct clp_control *c, const struct clp_control_total *total)
{
    if (!total)
        return;
    double d = total->counted + c->carried - total->sampled;
    double shift = c->variance > 0 ? d - c->skew / c->variance : 0;
    c->counted += total->counted;
    c->carried = 0;
    if (c->variance > 0 && by_chance(c, d) && has_room(c, shift)) {
        c->shift = shift / c->variance;
        c->pull = 1 / c->variance;
    } else if (d > 0) {
        c->carried = d;
    } else if (c->estimated > 0) {
        c->scale = CLP_MAX((c->estimated + d) / c->estimated, 0.0);
    }
}

double clp_control_factor(const struct clp_control *c, const struct clp_threshold_totals *t)
{
    double reach = reach_of(c, t);
    return CLP_MAX(c->scale * (1 + reach * (c->shift + reach * c->pull)), FACTOR_MIN);
}

double clp_control_rest(struct clp_control *c)
{
    double rest = c->carried;
    c->carried = 0;
    return rest;
}
