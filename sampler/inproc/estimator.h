/* How kept events become true numbers: the rules, without clocks, threads or memory of their own.
 *
 * Two of them. RESERVOIR: of each stratum a few members are kept, each as likely as any other, and
 * each stands for N/n of it: the stratum's total is exact, its split over stacks unbiased.
 * THRESHOLD (priority sampling, Duffield, Lund and Thorup 2007): the larger a member, the likelier
 * it is kept, those beyond a threshold always; one that is kept stands for 1/p of its kind. What a
 * member's chance is depends on what came before it and on its own size only; so sums are unbiased.
 * The totals are counted exactly beside it, and the estimates are scaled to them. */
#ifndef CLP_SAMPLER_INPROC_ESTIMATOR_H
#define CLP_SAMPLER_INPROC_ESTIMATOR_H

#include "base/core/core.h"

#include <stdatomic.h>
#include <stdbool.h>

/* ---- reservoir (Vitter 1985, algorithm R) ---- */

/* Is the i-th member (from 1) of a stratum, whose reservoir has `cap` places, kept? `random` is
 * uniform in [0, 1). */
static inline bool clp_reservoir_takes(uint64_t i, uint32_t cap, double random)
{
    return i <= cap || random * (double)i < (double)cap;
}

/* Where a kept member goes when `n` of `cap` places are taken: the next one, or one of them. */
static inline uint32_t clp_reservoir_place(uint32_t n, uint32_t cap, double random)
{
    return n < cap ? n : (uint32_t)(random * (double)cap);
}

/* ---- threshold ---- */

#define CLP_THRESHOLD_COUNT_ONE 1024u /* counts are fractions of this */

struct clp_threshold {
    /* of the epoch under way; callbacks of any thread */
    _Atomic uint64_t count, sum; /* exact: of all members, count in 1/CLP_THRESHOLD_COUNT_ONE */
    _Atomic uint64_t members;
    _Atomic uint32_t kept;
    /* in force; changed between epochs, and only made stricter within one */
    _Atomic uint64_t tau;     /* size beyond which a member is certain */
    _Atomic uint64_t floor;   /* chance of the smallest, in 2^-32 */
    _Atomic uint32_t tighter; /* all chances are halved this often */
    uint32_t target;          /* members to keep in an epoch */
};

/* Before anything is known all are kept, and ever fewer beyond one and a half times the target. */
void clp_threshold_init(struct clp_threshold *t, uint32_t target);

/* Counts a member of `count` (in 1/CLP_THRESHOLD_COUNT_ONE) and `size`. Its chance if it is kept
 * (its values are to be divided by it), else 0. Any thread. */
double clp_threshold_offer(struct clp_threshold *t, uint64_t count, uint64_t size, double random);

struct clp_threshold_totals {
    double count, sum;
};
/* Ends the epoch: its exact totals. Chances for the next one are chosen so that one of the usual
 * length keeps `target` members if it goes on like this one, whose length was `share` of that (0 to
 * 1). One thread at a time. */
struct clp_threshold_totals clp_threshold_end(struct clp_threshold *t, double share);

/* Scaling to a total is a ratio of estimates, whose bias is of the order of 1/n for n kept members:
 * an epoch should keep hundreds of them.
 *
 * What one total needs so that the kept members add up to it: those that were certain stay as they
 * are, the others are multiplied by the answer. *ret_rest is what nobody stands for (no uncertain
 * member was kept): it belongs to the next epoch. */
double clp_threshold_scale(double total, double certain, double uncertain, double *ret_rest);

/* Chance that an object of `size` bytes is met by a Poisson process over bytes: 1 -
 * exp(-size/mean).
 */
double clp_sampled_chance(double size, double mean);

#endif
