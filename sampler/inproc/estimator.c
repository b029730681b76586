#include "sampler/inproc/estimator.h"

#define FLOOR_ONE 4294967296.0
#define TIGHTER_MAX 24u
#define TAU_UNKNOWN (1ull << 62) /* sizes do not matter yet */

void clp_threshold_init(struct clp_threshold *t, uint32_t target)
{
    *t = (struct clp_threshold){.target = CLP_MAX(target, 2u)};
    atomic_store(&t->tau, TAU_UNKNOWN);
    atomic_store(&t->floor, (uint64_t)FLOOR_ONE);
}

static double chance(const struct clp_threshold *t, uint64_t size)
{
    double tau = (double)atomic_load_explicit(&t->tau, memory_order_relaxed);
    double floor = (double)atomic_load_explicit(&t->floor, memory_order_relaxed) / FLOOR_ONE;
    uint32_t tighter = atomic_load_explicit(&t->tighter, memory_order_relaxed);
    double p = ((double)size / tau + floor) / (double)(1u << tighter);
    return CLP_MIN(p, 1.0);
}

/* A burst after a quiet epoch: beyond one and a half times the target, each further quarter of it
 * halves the chances of all that follow. */
static void tighten(struct clp_threshold *t, uint32_t kept)
{
    uint32_t step = CLP_MAX(t->target / 4, 1u);
    if (kept < t->target + 2 * step || kept % step != 0)
        return;
    if (atomic_load_explicit(&t->tighter, memory_order_relaxed) < TIGHTER_MAX)
        atomic_fetch_add_explicit(&t->tighter, 1, memory_order_relaxed);
}

double clp_threshold_offer(struct clp_threshold *t, uint64_t count, uint64_t size, double random)
{
    double p = chance(t, size);
    atomic_fetch_add_explicit(&t->count, count, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->sum, size, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->members, 1, memory_order_relaxed);
    if (random >= p)
        return 0;
    tighten(t, atomic_fetch_add_explicit(&t->kept, 1, memory_order_relaxed) + 1);
    return p;
}

struct clp_threshold_totals clp_threshold_end(struct clp_threshold *t, double share)
{
    struct clp_threshold_totals r = {
        .count = (double)atomic_exchange(&t->count, 0) / CLP_THRESHOLD_COUNT_ONE,
        .sum = (double)atomic_exchange(&t->sum, 0),
    };
    double members = (double)atomic_exchange(&t->members, 0), half = t->target / 2.0 * share;
    double tau = r.sum / half, floor = members > half ? half / members : 1.0;
    atomic_store(&t->tau, tau >= 1 ? (uint64_t)tau : TAU_UNKNOWN);
    atomic_store(&t->floor, (uint64_t)(floor * FLOOR_ONE));
    atomic_store(&t->tighter, 0);
    atomic_store(&t->kept, 0);
    return r;
}

double clp_threshold_scale(double total, double certain, double uncertain, double *ret_rest)
{
    double left = total > certain ? total - certain : 0;
    *ret_rest = uncertain > 0 ? 0 : left;
    return uncertain > 0 ? left / uncertain : 1.0;
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
