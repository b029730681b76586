#include "sampler/inproc/estimator.h"

#define ONE 4294967296.0
#define TIGHTER_MAX 24u
#define TAU_UNKNOWN (1ull << 62) /* sizes do not matter yet */
#define FIRST_MAX 8.0            /* members of a class that are certain */
#define FIRST_KEPT 4.0           /* what of a class is kept for the first ones' sake, of each one */
#define PROBES 16u
#define PART_FIRST 128u
#define PART_NEXT 4u
#define IDLE_EPOCHS 2u

void clp_threshold_init(struct clp_threshold *t, struct clp_stratum *strata, uint32_t strata_count,
                        uint32_t target)
{
    *t = (struct clp_threshold){
        .strata = strata, .strata_count = strata_count, .target = CLP_MAX(target, 2u)};
    atomic_store(&t->tau, TAU_UNKNOWN);
    atomic_store(&t->floor, (uint64_t)ONE);
    atomic_store(&t->first, (uint64_t)(FIRST_MAX * ONE));
}

/* ---- offers ---- */

/* From `first` to before `end`; -1: there is no place for it. */
static int64_t stratum_in(struct clp_threshold *t, uint32_t first, uint32_t end, uint64_t key)
{
    uint32_t hash = (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 32);
    uint32_t at = first + hash % (end - first);
    for (uint32_t i = 0; i < PROBES; i++, at = at + 1 < end ? at + 1 : first) {
        struct clp_stratum *s = &t->strata[at];
        uint64_t now = atomic_load_explicit(&s->key, memory_order_relaxed);
        if (now == key ||
            (!now && (atomic_compare_exchange_strong(&s->key, &now, key) || now == key)))
            return at;
    }
    return -1;
}

/* A part of them is begun when the one before is crowded, so that few classes touch few pages. */
static uint32_t stratum_of(struct clp_threshold *t, uint64_t key)
{
    uint32_t first = 0, end = PART_FIRST;
    for (; first < t->strata_count; first = end, end *= PART_NEXT) {
        int64_t at = stratum_in(t, first, CLP_MIN(end, t->strata_count), key ? key : 1);
        if (at >= 0)
            return (uint32_t)at;
    }
    return t->strata_count - 1;
}

static double halved(double p, unsigned times)
{
    return times < 63 ? p / (double)(1ull << times) : 0;
}

/* Of the i-th member of its stratum. The first is not halved: no other can stand for it yet. */
static double chance(const struct clp_threshold *t, uint64_t i, uint64_t size, unsigned halvings)
{
    double tau = (double)atomic_load_explicit(&t->tau, memory_order_relaxed);
    double floor = (double)atomic_load_explicit(&t->floor, memory_order_relaxed) / ONE;
    double first = (double)atomic_load_explicit(&t->first, memory_order_relaxed) / ONE;
    uint32_t tighter = atomic_load_explicit(&t->tighter, memory_order_relaxed);
    double p = CLP_MAX((double)size / tau + floor, first / (double)i);
    p = halved(p, tighter + halvings);
    if (i == 1)
        p = CLP_MAX(p, first);
    return CLP_MIN(p, 1.0);
}

static double floor_for(double part, double members)
{
    return members > part ? part / members : 1.0;
}

/* Half of `part` each for the largest and for chance. */
static void set_chances(struct clp_threshold *t, double part, double members, double sum)
{
    double tau = sum / part;
    atomic_store(&t->tau, tau >= 1 ? (uint64_t)tau : TAU_UNKNOWN);
    atomic_store(&t->floor, (uint64_t)(floor_for(part, members) * ONE));
}

/* Where nothing was known before, what came so far says what is large: with equal chances the few
 * largest would make up most of what is estimated, and scaling that to a total is biased
 * (clp_threshold_ratio). False when it is known already, or too little came. */
static bool learn(struct clp_threshold *t)
{
    double part = t->target / 2.0;
    double members = (double)atomic_load_explicit(&t->members, memory_order_relaxed);
    if (atomic_load_explicit(&t->tau, memory_order_relaxed) != TAU_UNKNOWN || members < part)
        return false;
    set_chances(t, part, members, (double)atomic_load_explicit(&t->sum, memory_order_relaxed));
    return true;
}

/* A burst after a quiet epoch: beyond one and a half times the target, each further quarter of it
 * halves the chances of all that follow. */
static void tighten(struct clp_threshold *t, uint32_t kept)
{
    uint32_t step = CLP_MAX(t->target / 4, 1u);
    if (kept < t->target + 2 * step || kept % step != 0 || learn(t))
        return;
    if (atomic_load_explicit(&t->tighter, memory_order_relaxed) < TIGHTER_MAX)
        atomic_fetch_add_explicit(&t->tighter, 1, memory_order_relaxed);
}

struct clp_threshold_member clp_threshold_offer(struct clp_threshold *t, uint64_t key,
                                                uint64_t count, uint64_t size, unsigned halvings,
                                                double random)
{
    struct clp_threshold_member m = {
        .stratum = stratum_of(t, key),
        .epoch = atomic_load_explicit(&t->epoch, memory_order_acquire),
    };
    struct clp_stratum_totals *s = &t->strata[m.stratum].of[m.epoch & 1];
    atomic_fetch_add_explicit(&s->count, count, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->sum, size, memory_order_relaxed);
    uint64_t i = 1 + atomic_fetch_add_explicit(&s->members, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->members, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->sum, size, memory_order_relaxed);
    if (halvings)
        (void)learn(t); /* no later than chances begin to fall */
    double p = chance(t, i, size, halvings);
    if (random >= p)
        return m;
    tighten(t, atomic_fetch_add_explicit(&t->kept, 1, memory_order_relaxed) + 1);
    m.chance = p;
    return m;
}

/* ---- ends of epochs ---- */

void clp_threshold_turn(struct clp_threshold *t)
{
    atomic_fetch_add(&t->epoch, 1);
}

static double value_of(_Atomic uint64_t *of, bool take)
{
    return (double)(take ? atomic_exchange(of, 0) : atomic_load_explicit(of, memory_order_relaxed));
}

/* Of the epoch before the turn. Most strata have had nothing: their pages stay as they are. */
static struct clp_threshold_totals totals_of(const struct clp_threshold *t, uint32_t stratum,
                                             bool take)
{
    struct clp_stratum_totals *s = &t->strata[stratum].of[(atomic_load(&t->epoch) - 1) & 1];
    if (!atomic_load_explicit(&s->members, memory_order_relaxed))
        return (struct clp_threshold_totals){0};
    return (struct clp_threshold_totals){
        .members = value_of(&s->members, take),
        .count = value_of(&s->count, take) / CLP_THRESHOLD_COUNT_ONE,
        .sum = value_of(&s->sum, take),
    };
}

struct clp_threshold_totals clp_threshold_take(struct clp_threshold *t, uint32_t stratum)
{
    struct clp_threshold_totals taken = totals_of(t, stratum, true);
    if (taken.members > 0)
        t->strata[stratum].idle_epochs = 0;
    return taken;
}

struct clp_threshold_totals clp_threshold_peek(const struct clp_threshold *t, uint32_t stratum)
{
    return totals_of(t, stratum, false);
}

void clp_threshold_forget_idle(struct clp_threshold *t, uint32_t stratum)
{
    struct clp_stratum *s = &t->strata[stratum];
    const struct clp_stratum_totals *now = &s->of[atomic_load(&t->epoch) & 1];
    if (!atomic_load_explicit(&s->key, memory_order_relaxed) ||
        atomic_load_explicit(&now->members, memory_order_relaxed) || ++s->idle_epochs < IDLE_EPOCHS)
        return;
    s->idle_epochs = 0;
    atomic_store(&s->key, 0);
}

/* The first of each class come on top of the target. */
void clp_threshold_adapt(struct clp_threshold *t, const struct clp_threshold_totals *all,
                         uint32_t strata, double share)
{
    double part = t->target / 2.0 * share;
    double first = strata ? part / (FIRST_KEPT * strata) : FIRST_MAX;
    set_chances(t, part, all->members, all->sum);
    atomic_store(&t->first, (uint64_t)(CLP_MIN(first, FIRST_MAX) * ONE));
    atomic_store(&t->tighter, 0);
    atomic_store(&t->kept, 0);
    atomic_store(&t->members, 0);
    atomic_store(&t->sum, 0);
    t->seen = (struct clp_threshold_pace){0};
    t->passed = 0;
}

/* What was saved may be spent, at twice the usual pace at most; what was spent too much is saved,
 * but three quarters of the usual pace are always left. */
static double part_of_rest(const struct clp_threshold *t)
{
    double target = t->target, rest = target - (double)atomic_load(&t->kept);
    double left = CLP_MAX(1 - t->passed, 0.1);
    return CLP_MIN(CLP_MAX(rest / left, 0.75 * target), 2 * target) / 2;
}

void clp_threshold_follow(struct clp_threshold *t, double share)
{
    const struct clp_threshold_pace so_far = {(double)atomic_load(&t->members),
                                              (double)atomic_load(&t->sum)};
    t->pace.members = CLP_MAX((so_far.members - t->seen.members) / share, t->pace.members / 2);
    t->pace.sum = CLP_MAX((so_far.sum - t->seen.sum) / share, t->pace.sum / 2);
    t->seen = so_far;
    t->passed += share;
    double part = part_of_rest(t), floor = (double)atomic_load(&t->floor) / ONE;
    if (floor_for(part, t->pace.members) <= halved(floor, atomic_load(&t->tighter)))
        return;
    set_chances(t, part, t->pace.members, t->pace.sum);
    atomic_store(&t->tighter, 0);
}

struct clp_threshold_factors clp_threshold_scale(double total, double certain, double other)
{
    if (other > 0)
        return (struct clp_threshold_factors){
            .certain = 1, .other = total > certain ? (total - certain) / other : 0};
    if (certain > 0)
        return (struct clp_threshold_factors){.certain = total / certain, .other = 1};
    return (struct clp_threshold_factors){.certain = 1, .other = 1, .rest = total};
}

/* Without libm, which the library does not need otherwise: a series for a small argument, then
 * expm1(2x) = expm1(x) (expm1(x) + 2). */
double clp_sampled_chance(double size, double mean)
{
    double x = size / mean;
    unsigned doublings = 0;
    if (x > 40)
        return 1;
    for (; x > 1.0 / 64; x /= 2)
        doublings++;
    double m = -x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4 * (1 - x / 5))));
    while (doublings-- > 0)
        m *= m + 2;
    return -m;
}
