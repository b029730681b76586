/* Estimators against populations whose totals are known. "Unbiased" is an equivalence test: over a
 * stated number of seeded runs, the 95 % interval of the mean's error (for all classes together,
 * Bonferroni) must lie within a stated margin; too wide an interval fails as a wrong mean does. */
#include "sampler/inproc/estimator.h"

#include "tests/unit/clp-cmocka.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RUNS 60u
#define CLASSES_MAX 8u
#define T_QUANTILE 3.3 /* of Student's t, 59 degrees of freedom, 0.05 / (2 * 8) at each side */

static uint64_t seed;

static double uniform(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (double)(seed >> 11) * 0x1p-53;
}

static void begin_run(unsigned run)
{
    seed = 0x9e3779b97f4a7c15ull * (run + 1);
    for (int i = 0; i < 8; i++)
        (void)uniform();
}

/* Estimate over truth of each class in each run. */
struct ratios {
    unsigned classes;
    double of[CLASSES_MAX][RUNS];
};

static double mean_of(const struct ratios *r, unsigned c)
{
    double mean = 0;
    for (unsigned i = 0; i < RUNS; i++)
        mean += r->of[c][i] / RUNS;
    return mean;
}

/* Where the interval of class `c` ends that is farther from 1. */
static double worst_error(const struct ratios *r, unsigned c)
{
    double mean = mean_of(r, c), square = 0;
    for (unsigned i = 0; i < RUNS; i++)
        square += (r->of[c][i] - mean) * (r->of[c][i] - mean);
    return fabs(mean - 1) + T_QUANTILE * sqrt(square / (RUNS - 1) / RUNS);
}

static void assert_equivalent(const struct ratios *r, double margin)
{
    for (unsigned c = 0; c < r->classes; c++)
        if (!(worst_error(r, c) <= margin))
            fail_msg("class %u: the mean is %.4f, its interval reaches %.4f from 1, more than %.4f",
                     c, mean_of(r, c), worst_error(r, c), margin);
}

/* ---- reservoir ---- */

/* A stratum of `n` members; the first fifth is of class 0, then every third of class 1, else 2: in
 * time order, so that what prefers early or late members is found out. */
static unsigned class_at(uint64_t i, uint64_t n)
{
    return i < n / 5 ? 0 : i % 3 == 0 ? 1 : 2;
}

static void sample_stratum(uint64_t n, uint32_t cap, double *ret_by_class)
{
    unsigned *places = calloc(cap, sizeof(*places));
    uint32_t count = 0;
    assert_non_null(places);
    for (uint64_t i = 0; i < n; i++) {
        if (!clp_reservoir_takes(i + 1, cap, uniform()))
            continue;
        uint32_t at = clp_reservoir_place(count, cap, uniform());
        assert_true(at < cap);
        places[at] = class_at(i, n);
        count = CLP_MAX(count, at + 1);
    }
    for (uint32_t i = 0; i < count; i++)
        ret_by_class[places[i]] += (double)n / count;
    free(places);
}

static void test_reservoir_total_is_exact(void **state)
{
    (void)state;
    for (unsigned run = 0; run < 100; run++) {
        begin_run(run);
        uint64_t n = 1 + (uint64_t)(uniform() * 5000);
        double by_class[3] = {0};
        sample_stratum(n, 16, by_class);
        assert_true(fabs(by_class[0] + by_class[1] + by_class[2] - (double)n) < 1e-6 * (double)n);
    }
}

static void test_reservoir_keeps_all_of_few(void **state)
{
    double by_class[3] = {0};
    (void)state;
    begin_run(1);
    sample_stratum(15, 16, by_class);
    assert_true(by_class[0] == 3 && by_class[1] == 4 && by_class[2] == 8);
}

static void test_reservoir_split_is_unbiased(void **state)
{
    static struct ratios r = {.classes = 3};
    const uint64_t n = 6000, epochs = 120;
    double truth[3] = {0};
    (void)state;
    for (uint64_t i = 0; i < n; i++)
        truth[class_at(i, n)] += (double)epochs;
    for (unsigned run = 0; run < RUNS; run++) {
        double by_class[3] = {0};
        begin_run(run);
        for (uint64_t e = 0; e < epochs; e++)
            sample_stratum(n, 16, by_class);
        for (unsigned c = 0; c < 3; c++)
            r.of[c][run] = by_class[c] / truth[c];
    }
    assert_equivalent(&r, 0.02);
}

/* ---- threshold ---- */

struct estimate {
    double count[CLASSES_MAX], sum[CLASSES_MAX];
};

struct kept {
    double count, sum, chance;
    unsigned class_id;
    bool certain;
};
#define KEPT_MAX 16384u

#define STRATA 64u

/* One epoch as event_sized.c has it: members, then scaled to the totals of their strata. */
struct epoch {
    struct clp_stratum strata[STRATA];
    struct kept kept[KEPT_MAX];
    uint32_t stratum[KEPT_MAX];
    unsigned n, halvings;
    double rest_count[STRATA], rest_sum[STRATA];
};

static void offer(struct clp_threshold *t, struct epoch *e, uint64_t key, unsigned class_id,
                  double count, uint64_t size)
{
    struct clp_threshold_member m = clp_threshold_offer(
        t, key, (uint64_t)(count * CLP_THRESHOLD_COUNT_ONE), size, e->halvings, uniform());
    if (m.chance <= 0)
        return;
    assert_true(m.chance <= 1 && e->n < KEPT_MAX && m.stratum < STRATA);
    e->stratum[e->n] = m.stratum;
    e->kept[e->n++] =
        (struct kept){count / m.chance, (double)size / m.chance, m.chance, class_id, m.chance >= 1};
}

static void end_epoch(struct clp_threshold *t, struct epoch *e, struct estimate *ret)
{
    struct {
        double sure_count, sure_sum;
        struct clp_threshold_ratio count, sum;
    } of[STRATA] = {0};
    struct clp_threshold_factors counts[STRATA], sums[STRATA];
    struct clp_threshold_totals all = {0};
    uint32_t strata = 0;
    clp_threshold_turn(t);
    for (unsigned i = 0; i < e->n; i++) {
        const struct kept *k = &e->kept[i];
        uint32_t s = e->stratum[i];
        of[s].sure_count += k->certain ? k->count : 0;
        of[s].sure_sum += k->certain ? k->sum : 0;
        if (!k->certain) {
            clp_threshold_ratio_add(&of[s].count, k->count, k->chance);
            clp_threshold_ratio_add(&of[s].sum, k->sum, k->chance);
        }
    }
    for (uint32_t s = 0; s < STRATA; s++) {
        struct clp_threshold_totals one = clp_threshold_take(t, s);
        counts[s] =
            clp_threshold_scale(one.count + e->rest_count[s], of[s].sure_count, of[s].count.sum);
        sums[s] = clp_threshold_scale(one.sum + e->rest_sum[s], of[s].sure_sum, of[s].sum.sum);
        e->rest_count[s] = counts[s].rest;
        e->rest_sum[s] = sums[s].rest;
        all.sum += one.sum;
        all.members += one.members;
        strata += one.members > 0;
        if (!one.members && e->rest_count[s] <= 0)
            clp_threshold_forget_idle(t, s);
    }
    for (unsigned i = 0; i < e->n; i++) {
        const struct kept *k = &e->kept[i];
        uint32_t s = e->stratum[i];
        double count = k->certain ? counts[s].certain : counts[s].other;
        double sum = k->certain ? sums[s].certain : sums[s].other;
        if (!k->certain) {
            count *= clp_threshold_ratio_correction(&of[s].count, k->count, k->chance);
            sum *= clp_threshold_ratio_correction(&of[s].sum, k->sum, k->chance);
        }
        ret->count[k->class_id] += k->count * count;
        ret->sum[k->class_id] += k->sum * sum;
    }
    e->n = 0;
    clp_threshold_adapt(t, &all, strata, 1);
}

static void begin(struct clp_threshold *t, struct epoch *e, uint32_t target)
{
    memset(e, 0, sizeof(*e));
    clp_threshold_init(t, e->strata, STRATA, target);
}

/* Waits of one lock at three places: many of 10 us, some of 1 ms, and one of 2 s in a whole run. */
static void lock_run(struct estimate *ret, struct estimate *truth)
{
    static struct epoch e;
    struct clp_threshold t;
    begin(&t, &e, 800);
    for (unsigned epoch = 0; epoch < 8; epoch++) {
        for (unsigned i = 0; i < 30000; i++) {
            unsigned class_id = epoch == 4 && i == 3000 ? 2 : i % 6 == 0;
            uint64_t ns = class_id == 2   ? 2000000000
                          : class_id == 1 ? 900000 + (uint64_t)(uniform() * 200000)
                                          : 8000 + (uint64_t)(uniform() * 4000);
            truth->count[class_id] += 1;
            truth->sum[class_id] += (double)ns;
            offer(&t, &e, 7, class_id, 1, ns);
        }
        end_epoch(&t, &e, ret);
    }
}

static void test_waits_are_unbiased_and_their_totals_exact(void **state)
{
    static struct ratios counts = {.classes = 3}, sums = {.classes = 3};
    (void)state;
    for (unsigned run = 0; run < RUNS; run++) {
        struct estimate got = {0}, truth = {0};
        begin_run(run);
        lock_run(&got, &truth);
        double all_counts = 0, all_sums = 0;
        for (unsigned c = 0; c < 3; c++) {
            counts.of[c][run] = got.count[c] / truth.count[c];
            sums.of[c][run] = got.sum[c] / truth.sum[c];
            all_counts += got.count[c] - truth.count[c];
            all_sums += got.sum[c] - truth.sum[c];
        }
        assert_true(fabs(all_counts) < 0.01);
        assert_true(fabs(all_sums) < 1);
        assert_true(counts.of[2][run] == 1 && sums.of[2][run] == 1); /* the long one is certain */
    }
    assert_equivalent(&counts, 0.02);
    assert_equivalent(&sums, 0.02);
}

/* More classes than there are strata, but not at once: each is told apart as long as it is alone.
 */
static void test_classes_that_come_and_go_are_told_apart(void **state)
{
    static struct epoch e;
    struct clp_threshold t;
    (void)state;
    begin_run(1);
    begin(&t, &e, 100);
    for (unsigned generation = 0; generation < 20; generation++) {
        struct estimate got = {0};
        for (unsigned i = 0; i < 4000; i++)
            offer(&t, &e, 1 + generation * 8 + i % 8, i % 8 % 3, 1, 10 + i % 100);
        end_epoch(&t, &e, &got);
        for (unsigned key = 1 + generation * 8; key < 1 + (generation + 1) * 8; key++) {
            unsigned places = 0;
            for (unsigned s = 0; s < STRATA; s++)
                places += atomic_load(&e.strata[s].key) == key;
            assert_int_equal(places, 1);
        }
    }
}

/* A class that pauses for an epoch keeps its place. */
static void test_a_pause_is_no_end(void **state)
{
    static struct epoch e;
    struct clp_threshold t;
    struct estimate got = {0};
    (void)state;
    begin(&t, &e, 100);
    for (unsigned i = 0; i < 6; i++) {
        if (i % 2 == 0)
            offer(&t, &e, 7, 0, 1, 10);
        end_epoch(&t, &e, &got);
        unsigned places = 0;
        for (unsigned s = 0; s < STRATA; s++)
            places += atomic_load(&e.strata[s].key) == 7;
        assert_int_equal(places, 1);
    }
    for (unsigned i = 0; i < 2; i++)
        end_epoch(&t, &e, &got);
    for (unsigned s = 0; s < STRATA; s++)
        assert_int_equal(atomic_load(&e.strata[s].key), 0);
}

/* Many locks, for each of which short waits and heavy-tailed long ones compete, so that few of each
 * are kept, in an epoch of which nothing was known before: scaled to the lock's total without the
 * correction of ratios, the long ones would come out 2 % too small. */
static void many_locks_run(struct estimate *ret, struct estimate *truth, unsigned halvings)
{
    static struct epoch e;
    struct clp_threshold t;
    begin(&t, &e, 600);
    for (unsigned i = 0; i < 5000; i++) {
        unsigned class_id = uniform() < 0.2;
        double ms = class_id ? fmin(200, 7 / pow(1 - uniform(), 1 / 1.5)) : 4;
        truth->count[class_id] += 1;
        truth->sum[class_id] += floor(ms * 1e6);
        e.halvings = i > 150 ? halvings : 0;
        offer(&t, &e, 1 + i % 20, class_id, 1, (uint64_t)(ms * 1e6));
    }
    end_epoch(&t, &e, ret);
}

static void assert_many_locks(unsigned halvings)
{
    static struct ratios counts = {.classes = 2}, sums = {.classes = 2};
    for (unsigned run = 0; run < RUNS; run++) {
        struct estimate got = {0}, truth = {0};
        begin_run(run);
        for (unsigned i = 0; i < 30; i++)
            many_locks_run(&got, &truth, halvings);
        for (unsigned c = 0; c < 2; c++) {
            counts.of[c][run] = got.count[c] / truth.count[c];
            sums.of[c][run] = got.sum[c] / truth.sum[c];
        }
    }
    assert_equivalent(&counts, 0.012);
    assert_equivalent(&sums, 0.012);
}

/* Also while the ring presses before anything is known. */
static void test_few_of_many_locks_are_unbiased(void **state)
{
    (void)state;
    assert_many_locks(0);
    assert_many_locks(2);
}

/* Objects of 32 B, 1 KB and 100 KB as the runtime of .NET 10 samples them, then ours. The classes
 * come mixed in one half of the runs, and one after the other in the other. */
static void alloc_run(unsigned run, struct estimate *ret, struct estimate *truth)
{
    static const double sizes[] = {32, 1024, 102400};
    static const unsigned each[] = {1200000, 120000, 1200};
    static struct epoch e;
    struct clp_threshold t;
    begin(&t, &e, 800);
    for (unsigned epoch = 0; epoch < 12; epoch++) {
        for (unsigned k = 0; k < 3; k++) {
            unsigned c = run % 2 ? k : (k + epoch) % 3;
            double chance = clp_sampled_chance(sizes[c], 102400);
            truth->count[c] += each[c];
            truth->sum[c] += each[c] * sizes[c];
            for (unsigned i = 0; i < each[c]; i++)
                if (uniform() < chance)
                    offer(&t, &e, c + 1, c, 1 / chance, (uint64_t)(sizes[c] / chance));
        }
        end_epoch(&t, &e, ret);
    }
}

static void test_allocations_are_unbiased(void **state)
{
    static struct ratios counts = {.classes = 3}, sums = {.classes = 3};
    (void)state;
    for (unsigned run = 0; run < RUNS; run++) {
        struct estimate got = {0}, truth = {0};
        begin_run(run);
        alloc_run(run, &got, &truth);
        for (unsigned c = 0; c < 3; c++) {
            counts.of[c][run] = got.count[c] / truth.count[c];
            sums.of[c][run] = got.sum[c] / truth.sum[c];
        }
    }
    assert_equivalent(&counts, 0.02);
    assert_equivalent(&sums, 0.02);
}

/* In each epoch a burst of one class comes first, then another class at a tenth of its pace, whose
 * estimate is not scaled to a total: a live heap. */
#define PARTS 20u
#define BURST_PARTS 3u
#define BURST_EACH 2000u /* in a part */
static void burst_run(bool follow, double *ret_ratio, unsigned *ret_kept)
{
    static struct epoch e;
    struct clp_threshold t;
    double sum = 0;
    unsigned truth = 0;
    begin(&t, &e, 800);
    for (unsigned epoch = 0; epoch < 4; epoch++) {
        struct estimate ignored = {0};
        for (unsigned part = 0; part < PARTS; part++) {
            unsigned class_id = part >= BURST_PARTS, n = class_id ? BURST_EACH / 10 : BURST_EACH;
            for (unsigned i = 0; i < n; i++)
                offer(&t, &e, 1, class_id, 1, 1000);
            truth += class_id * n;
            if (follow)
                clp_threshold_follow(&t, 1.0 / PARTS);
        }
        for (unsigned i = 0; i < e.n; i++)
            sum += e.kept[i].class_id ? e.kept[i].count : 0;
        *ret_kept = epoch > 0 ? CLP_MAX(*ret_kept, e.n) : 0; /* of the first nothing was known */
        end_epoch(&t, &e, &ignored);
    }
    *ret_ratio = sum / truth;
}

static double spread_of(const struct ratios *r)
{
    double mean = mean_of(r, 0), square = 0;
    for (unsigned i = 0; i < RUNS; i++)
        square += (r->of[0][i] - mean) * (r->of[0][i] - mean);
    return sqrt(square / (RUNS - 1));
}

static void test_what_follows_a_burst_is_kept(void **state)
{
    static struct ratios with = {.classes = 1}, without = {.classes = 1};
    unsigned kept, most = 0;
    (void)state;
    for (unsigned run = 0; run < RUNS; run++) {
        begin_run(run);
        burst_run(false, &without.of[0][run], &kept);
        begin_run(run);
        burst_run(true, &with.of[0][run], &kept);
        most = CLP_MAX(most, kept);
    }
    assert_equivalent(&with, 0.03);
    print_message("spread %.4f, without %.4f; at most %u kept\n", spread_of(&with),
                  spread_of(&without), most);
    assert_true(spread_of(&with) < 0.85 * spread_of(&without));
    assert_true(most < 2 * 800);
}

static unsigned count_kept(struct clp_threshold *t, struct epoch *e, unsigned n, unsigned keys)
{
    for (unsigned i = 0; i < n; i++)
        (void)clp_threshold_offer(t, i % keys + 1, CLP_THRESHOLD_COUNT_ONE, 1000, 0, uniform());
    unsigned kept = atomic_load(&t->kept);
    struct estimate ignored = {0};
    end_epoch(t, e, &ignored);
    memset(e->rest_count, 0, sizeof(e->rest_count));
    memset(e->rest_sum, 0, sizeof(e->rest_sum));
    return kept;
}

static void test_a_burst_is_bounded(void **state)
{
    static struct epoch e;
    struct clp_threshold t;
    (void)state;
    begin_run(5);
    begin(&t, &e, 100);
    unsigned kept = count_kept(&t, &e, 1000000, 1);
    assert_true(kept > 150 && kept < 700);
    kept = count_kept(&t, &e, 1000000, 1);
    assert_true(kept > 50 && kept < 250);
}

/* As many classes as there are members to keep: the first of each must not eat it all. */
static void test_many_classes_are_bounded(void **state)
{
    static struct epoch e;
    struct clp_threshold t;
    (void)state;
    begin_run(7);
    begin(&t, &e, 100);
    (void)count_kept(&t, &e, 100000, STRATA);
    unsigned kept = count_kept(&t, &e, 100000, STRATA);
    assert_true(kept > 50 && kept < 400);
}

/* The first ones of a class are certain, however rare it is beside the others. */
static void test_a_rare_class_is_kept(void **state)
{
    static struct epoch e;
    struct clp_threshold t;
    struct estimate got = {0};
    (void)state;
    begin_run(8);
    begin(&t, &e, 400);
    (void)count_kept(&t, &e, 500000, 2);
    for (unsigned i = 0; i < 500000; i++)
        offer(&t, &e, i == 400000 ? 9 : 1, i == 400000, 1, 1000);
    end_epoch(&t, &e, &got);
    assert_true(got.count[1] == 1 && got.sum[1] == 1000);
    assert_true(fabs(got.count[0] - 499999) < 1e-3);
}

/* A short epoch that kept few says more of the next one than its numbers do. */
static void test_an_epoch_cut_short_is_no_quiet_one(void **state)
{
    static struct epoch e;
    struct clp_threshold t;
    (void)state;
    begin_run(6);
    begin(&t, &e, 100);
    for (unsigned i = 0; i < 100; i++)
        (void)clp_threshold_offer(&t, 1, CLP_THRESHOLD_COUNT_ONE, 1000, 0, uniform());
    clp_threshold_turn(&t);
    struct clp_threshold_totals all = clp_threshold_take(&t, 0);
    for (uint32_t s = 0; s < STRATA && all.members == 0; s++)
        all = clp_threshold_take(&t, s);
    assert_true(all.members == 100 && all.count == 100 && all.sum == 100000);
    clp_threshold_adapt(&t, &all, 1, 0.01);
    unsigned kept = count_kept(&t, &e, 10000, 1);
    assert_true(kept > 50 && kept < 200);
}

/* Bursts that fill the ring: while they last chances fall, and each class keeps its total; its
 * split over two callers, of which one comes in bursts alone, stays right in the mean. */
static void test_pressure_of_the_ring_biases_nothing(void **state)
{
    static struct ratios sums = {.classes = 4};
    static struct epoch e;
    struct clp_threshold t;
    (void)state;
    for (unsigned run = 0; run < RUNS; run++) {
        struct estimate got = {0}, truth = {0};
        begin_run(run);
        begin(&t, &e, 4000);
        for (unsigned i = 0; i < 480000; i++) {
            bool burst = i % 40000 > 25000;
            unsigned key = i % 3 == 0, class_id = 2 * key + (burst && i % 7 < 3);
            /* As a ring that is emptied each 500 events would have it. */
            e.halvings = burst ? i % 500 / 100 : 0;
            truth.sum[class_id] += 1000;
            offer(&t, &e, key + 1, class_id, 1, 1000);
            if (i % 40000 == 39999)
                end_epoch(&t, &e, &got);
        }
        for (unsigned c = 0; c < 4; c++)
            sums.of[c][run] = got.sum[c] / truth.sum[c];
        for (unsigned c = 0; c < 4; c += 2)
            assert_true(fabs(got.sum[c] + got.sum[c + 1] - truth.sum[c] - truth.sum[c + 1]) < 1);
    }
    assert_equivalent(&sums, 0.02);
}

/* A turn parts the epochs also for those who offer meanwhile. */
static void test_a_turn_parts_epochs(void **state)
{
    static struct epoch e;
    struct clp_threshold t;
    (void)state;
    begin_run(9);
    begin(&t, &e, 100);
    struct clp_threshold_member one = clp_threshold_offer(&t, 5, 1024, 10, 0, 0);
    clp_threshold_turn(&t);
    struct clp_threshold_member other = clp_threshold_offer(&t, 5, 1024, 30, 0, 0);
    assert_int_equal(one.stratum, other.stratum);
    assert_int_equal(one.epoch + 1, other.epoch);
    struct clp_threshold_totals first = clp_threshold_take(&t, one.stratum);
    assert_true(first.count == 1 && first.sum == 10 && first.members == 1);
    assert_true(clp_threshold_take(&t, one.stratum).members == 0);
    clp_threshold_turn(&t);
    assert_true(clp_threshold_take(&t, one.stratum).sum == 30);
}

static void test_what_nobody_stands_for_is_carried(void **state)
{
    (void)state;
    struct clp_threshold_factors f = clp_threshold_scale(10, 4, 3);
    assert_true(f.certain == 1 && f.other == 2 && f.rest == 0);
    f = clp_threshold_scale(10, 4, 0);
    assert_true(f.certain == 2.5 && f.rest == 0);
    f = clp_threshold_scale(10, 0, 0);
    assert_true(f.rest == 10);
    f = clp_threshold_scale(10, 12, 3);
    assert_true(f.certain == 1 && f.other == 0 && f.rest == 0);
}

/* What lies beyond the first of them is memory that few classes need not touch. */
static void test_few_classes_take_the_first_strata(void **state)
{
    static struct clp_stratum many[2048];
    struct clp_threshold t;
    uint32_t last = 0;
    (void)state;
    begin_run(5);
    clp_threshold_init(&t, many, CLP_ARRAY_LEN(many), 100);
    for (unsigned i = 0; i < 80; i++) {
        uint64_t key = (uint64_t)(uniform() * 0x1p60) | 1;
        struct clp_threshold_member m = clp_threshold_offer(&t, key, 1, 1, 0, 0);
        assert_true(atomic_load(&many[m.stratum].key) == key);
        last = CLP_MAX(last, m.stratum);
    }
    assert_true(last < 128);
}

/* And as many as there are strata find nearly all a place of their own. */
static void test_many_classes_take_all_strata(void **state)
{
    static struct clp_stratum many[2048];
    struct clp_threshold t;
    uint32_t without = 0;
    (void)state;
    begin_run(6);
    clp_threshold_init(&t, many, CLP_ARRAY_LEN(many), 100);
    for (unsigned i = 0; i < 1600; i++) {
        uint64_t key = (uint64_t)(uniform() * 0x1p60) | 1;
        struct clp_threshold_member m = clp_threshold_offer(&t, key, 1, 1, 0, 0);
        without += atomic_load(&many[m.stratum].key) != key;
    }
    assert_true(without < 16);
}

static void test_chance_of_a_sampled_object(void **state)
{
    (void)state;
    for (double size = 24; size < 1e7; size *= 1.7)
        assert_true(fabs(clp_sampled_chance(size, 102400) / -expm1(-size / 102400) - 1) < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reservoir_total_is_exact),
        cmocka_unit_test(test_reservoir_keeps_all_of_few),
        cmocka_unit_test(test_reservoir_split_is_unbiased),
        cmocka_unit_test(test_waits_are_unbiased_and_their_totals_exact),
        cmocka_unit_test(test_few_of_many_locks_are_unbiased),
        cmocka_unit_test(test_allocations_are_unbiased),
        cmocka_unit_test(test_what_follows_a_burst_is_kept),
        cmocka_unit_test(test_a_burst_is_bounded),
        cmocka_unit_test(test_many_classes_are_bounded),
        cmocka_unit_test(test_a_rare_class_is_kept),
        cmocka_unit_test(test_classes_that_come_and_go_are_told_apart),
        cmocka_unit_test(test_a_pause_is_no_end),
        cmocka_unit_test(test_pressure_of_the_ring_biases_nothing),
        cmocka_unit_test(test_a_turn_parts_epochs),
        cmocka_unit_test(test_an_epoch_cut_short_is_no_quiet_one),
        cmocka_unit_test(test_what_nobody_stands_for_is_carried),
        cmocka_unit_test(test_few_classes_take_the_first_strata),
        cmocka_unit_test(test_many_classes_take_all_strata),
        cmocka_unit_test(test_chance_of_a_sampled_object),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
