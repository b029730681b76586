/* How kept events become true numbers: the rules, without clocks, threads or memory of their own.
 *
 * Two of them. RESERVOIR: of each stratum a few members are kept, each as likely as any other, and
 * each stands for N/n of it: the stratum's total is exact, its split over stacks unbiased.
 * THRESHOLD (priority sampling, Duffield, Lund and Thorup 2007): the larger a member, the likelier
 * it is kept, those beyond a threshold always, and the first ones of each class; one that is kept
 * stands for 1/p of its kind. What a member's chance is depends on what came before it and on its
 * own size only; so sums are unbiased. The totals of each class are counted exactly beside it, and
 * the estimates are scaled to them. */
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

/* One class of members: its exact totals, those of two epochs, which turn. */
struct clp_stratum {
    _Atomic uint64_t key; /* 0: free */
    struct clp_stratum_totals {
        _Atomic uint64_t count, sum; /* count in 1/CLP_THRESHOLD_COUNT_ONE */
        _Atomic uint64_t members;
    } of[2];
    uint32_t idle_epochs;
    _Atomic uint32_t name; /* the caller's: how to find what it is called */
};

struct clp_threshold {
    struct clp_stratum *strata; /* a power of two of them; the last one takes what finds no place */
    uint32_t strata_count;
    uint32_t target; /* members to keep in an epoch */
    _Atomic uint32_t epoch;
    /* in the epoch under way */
    _Atomic uint32_t kept;
    _Atomic uint64_t members, sum; /* offered, of all strata */
    /* in force; changed between epochs; within one made stricter by what is kept, and by
     * clp_threshold_follow less so */
    _Atomic uint64_t tau;   /* size beyond which a member is certain */
    _Atomic uint64_t floor; /* chance of the smallest, in 2^-32 */
    _Atomic uint64_t first; /* of each stratum the i-th is kept at least with first / i, in 2^-32 */
    _Atomic uint32_t tighter; /* all chances are halved this often */
    /* Of clp_threshold_follow, in this epoch: what was offered when it was last called, and the
     * part of the usual length that had passed; and the pace of members, as for a whole epoch. */
    double passed;
    struct clp_threshold_pace {
        double members, sum;
    } seen, pace;
};

/* Before anything is known all are kept, and ever fewer beyond one and a half times the target.
 * `strata` are zeroed and outlive it. */
void clp_threshold_init(struct clp_threshold *t, struct clp_stratum *strata, uint32_t strata_count,
                        uint32_t target);

struct clp_threshold_member {
    double chance; /* its values are to be divided by it; 0: not kept */
    uint32_t stratum, epoch;
};
/* Counts a member of class `key`, of `count` (in 1/CLP_THRESHOLD_COUNT_ONE) and `size`, and says
 * whether it is kept. `halvings`: the chance is halved this often, for a reason that has nothing to
 * do with the member. `random` is uniform in [0, 1). Any thread. */
struct clp_threshold_member clp_threshold_offer(struct clp_threshold *t, uint64_t key,
                                                uint64_t count, uint64_t size, unsigned halvings,
                                                double random);

/* From here on members belong to the next epoch. One thread at a time, as the rest. */
void clp_threshold_turn(struct clp_threshold *t);
/* Totals of a stratum in the epoch before the turn; once each. */
struct clp_threshold_totals {
    double count, sum, members;
};
struct clp_threshold_totals clp_threshold_take(struct clp_threshold *t, uint32_t stratum);
/* The same, before they are taken. */
struct clp_threshold_totals clp_threshold_peek(const struct clp_threshold *t, uint32_t stratum);
/* After take, of a stratum that had no members and has nothing left to stand for: in the second
 * epoch of that kind its place is given to the next class. (A member that was offered for so long,
 * by a thread that got no time, may then count for that class: the sum over all is right still.) */
void clp_threshold_forget_idle(struct clp_threshold *t, uint32_t stratum);
/* Chances for the epoch under way are chosen so that one of the usual length keeps `target` members
 * if it goes on like the last one: `all` were its totals over `strata` that had any, and `share`
 * (0 to 1) its length as a part of the usual one. */
void clp_threshold_adapt(struct clp_threshold *t, const struct clp_threshold_totals *all,
                         uint32_t strata, double share);

/* Within an epoch, again and again: a part of it, `share` of the usual length, has passed since the
 * last call or the epoch's beginning. Where members come slowly enough, chances are raised: to
 * those for members that come as fast as in this part, or half as fast as was expected of it. So
 * what follows a burst is not kept as rarely as the burst's end was for the rest of the epoch; and
 * bursts that come over and over are expected. Where values are not scaled to a total afterwards,
 * few members that stand for very many would be most of the error. */
void clp_threshold_follow(struct clp_threshold *t, double share);

/* What the kept members of a stratum are multiplied by so that they add up to its total: those that
 * were certain stay as they are while there are others. `rest` is what nobody stands for (none was
 * kept): it belongs to the next epoch. */
struct clp_threshold_factors {
    double certain, other, rest;
};
struct clp_threshold_factors clp_threshold_scale(double total, double certain, double other);

/* Scaling to a total makes a ratio of two estimates of each part of it, and that is biased by the
 * order of 1/n for n kept members: a part with large members comes out too small, since where more
 * of it are kept than usual the whole is estimated too high. Beale's correction (Beale 1962; Tin
 * 1965) leaves an error of 1/n^2, and, member by member, the total as it is. */
struct clp_threshold_ratio {
    double sum;    /* of the values of members that were not certain, each divided by its chance */
    double spread; /* estimated variance of that sum */
};
static inline void clp_threshold_ratio_add(struct clp_threshold_ratio *r, double value,
                                           double chance)
{
    r->sum += value;
    r->spread += value * value * (1 - chance);
}
/* What the value is to be multiplied by, beside the factor of clp_threshold_scale, when all have
 * been added. */
static inline double clp_threshold_ratio_correction(const struct clp_threshold_ratio *r,
                                                    double value, double chance)
{
    if (r->sum <= 0)
        return 1;
    return (1 + value * (1 - chance) / r->sum) / (1 + r->spread / (r->sum * r->sum));
}

/* Chance that an object of `size` bytes is met by a Poisson process over bytes: 1 -
 * exp(-size/mean).
 */
double clp_sampled_chance(double size, double mean);

#endif
