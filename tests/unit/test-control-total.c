/* A made-up program's allocations, sampled as the runtime does it, scaled to what it allocated. */
#include "sampler/inproc/control_total.h"

#include "tests/unit/clp-cmocka.h"

#include <math.h>

#define MEAN 102400.0
#define CLASSES 5u
#define RUNS 60u
#define T_QUANTILE                                                                                 \
    3.2 /* of Student's t, 59 degrees of freedom, 0.05 / (2 * CLASSES) at each side */

/* The last is met for certain. */
static const double sizes[CLASSES] = {32, 1024, 102040, 600000, 5e6};

static uint64_t seed;

static double uniform(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return ((double)(seed >> 11) + 0.5) * 0x1p-53;
}

static void begin_run(unsigned run)
{
    seed = 0x9e3779b97f4a7c15ull * (run + 1);
    for (int i = 0; i < 8; i++)
        (void)uniform();
}

/* How many of `n` objects are met, each with chance p: from one to the next. */
static uint64_t met(uint64_t n, double p)
{
    uint64_t k = 0;
    double at = 0;
    if (p > 1 - 1e-12)
        return n;
    for (;; k++) {
        at += floor(log(uniform()) / log1p(-p)) + 1;
        if (at > (double)n)
            return k;
    }
}

static struct clp_threshold_totals sample(uint64_t n, double size)
{
    double p = clp_sampled_chance(size, MEAN), k = (double)met(n, p);
    return (struct clp_threshold_totals){.count = k / p, .sum = k * size / p, .members = k};
}

static struct clp_control control_new(void)
{
    return (struct clp_control){.mean = MEAN, .random = true};
}

/* ---- one program ---- */

struct sums {
    double raw[CLASSES], scaled[CLASSES], objects[CLASSES], truth[CLASSES], rest;
};

/* `objects` of each class in each epoch; the sum of all is exact after each. */
static void run_program(const double objects[CLASSES], unsigned epochs, struct sums *ret)
{
    struct clp_control c = control_new();
    double total = 0, told = 0;
    *ret = (struct sums){0};
    for (unsigned e = 0; e < epochs; e++) {
        struct clp_threshold_totals t[CLASSES];
        double epoch = 0;
        clp_control_begin(&c);
        for (unsigned i = 0; i < CLASSES; i++) {
            uint64_t n = (uint64_t)(objects[i] + uniform()); /* less than one an epoch, too */
            t[i] = sample(n, sizes[i]);
            ret->truth[i] += (double)n * sizes[i];
            epoch += (double)n * sizes[i];
            clp_control_add(&c, &t[i]);
        }
        clp_control_fit(&c, &(struct clp_control_total){epoch, c.estimated});
        for (unsigned i = 0; i < CLASSES; i++) {
            double f = clp_control_factor(&c, &t[i]);
            assert_true(f > 0 && isfinite(f));
            ret->raw[i] += t[i].sum;
            ret->scaled[i] += t[i].sum * f;
            ret->objects[i] += t[i].count * f;
            told += t[i].sum * f;
        }
        total += epoch;
        assert_true(fabs(told + c.carried - total) <= 1e-9 * total);
    }
    ret->rest = clp_control_rest(&c);
    assert_true(c.carried == 0 && fabs(c.counted - total) <= 1e-9 * total);
}

struct spread {
    double sum, square;
};

static void add(struct spread *s, double x)
{
    s->sum += x / RUNS;
    s->square += x * x / RUNS;
}

static double deviation(const struct spread *s)
{
    return sqrt(CLP_MAX(s->square - s->sum * s->sum, 0.0) * RUNS / (RUNS - 1));
}

/* Equivalence: the interval of each class's mean error lies within `margin`. `noise`: its deviation
 * may be that much larger than that of what was sampled alone. */
static void check_program(const double objects[CLASSES], unsigned epochs, double margin,
                          double noise)
{
    struct spread scaled[CLASSES] = {0}, raw[CLASSES] = {0}, counts[CLASSES] = {0}, all = {0};
    for (unsigned run = 0; run < RUNS; run++) {
        struct sums s;
        double truth = 0, told = 0;
        begin_run(run);
        run_program(objects, epochs, &s);
        for (unsigned i = 0; i < CLASSES; i++) {
            add(&scaled[i], s.scaled[i] / CLP_MAX(s.truth[i], 1.0));
            add(&raw[i], s.raw[i] / CLP_MAX(s.truth[i], 1.0));
            add(&counts[i], s.objects[i] * sizes[i] / CLP_MAX(s.scaled[i], 1.0));
            truth += s.truth[i];
            told += s.scaled[i];
        }
        add(&all, (told + s.rest) / truth);
    }
    assert_true(fabs(all.sum - 1) < 1e-9 && deviation(&all) < 1e-6);
    for (unsigned i = 0; i < CLASSES; i++) {
        double error = fabs(scaled[i].sum - 1) + T_QUANTILE * deviation(&scaled[i]) / sqrt(RUNS);
        if (objects[i] <= 0)
            continue;
        if (!(error <= margin))
            fail_msg("class %u: mean %.4f, its interval reaches %.4f from 1", i, scaled[i].sum,
                     error);
        /* Objects keep their size. */
        assert_true(fabs(counts[i].sum - 1) < 1e-6);
        assert_true(deviation(&scaled[i]) <= noise * deviation(&raw[i]) + 1e-6);
    }
}

static void test_many_samples(void **state)
{
    (void)state;
    check_program((const double[]){2e6, 2e5, 2e3, 0, 0}, 5, 0.02, 1.1);
}

static void test_beside_large_objects(void **state)
{
    (void)state;
    check_program((const double[]){5e5, 2e4, 500, 100, 40}, 20, 0.02, 1.1);
}

/* Ten and three samples an epoch: many epochs have none of a class, some none at all. What is left
 * of bias goes with the square of their number. */
static void test_few_samples(void **state)
{
    (void)state;
    check_program((const double[]){12000, 300, 1.5, 0, 0}, 2500, 0.02, 1.4);
    check_program((const double[]){4000, 100, 0.5, 0, 0}, 2500, 0.06, 1.7);
}

static void test_certain_ones_stay_as_they_are(void **state)
{
    struct sums s;
    (void)state;
    begin_run(7);
    run_program((const double[]){1e6, 1e4, 100, 0, 30}, 10, &s);
    assert_true(fabs(s.scaled[4] / s.truth[4] - 1) < 1e-9);
    assert_true(s.raw[0] != s.scaled[0]);
}

/* ---- what chance does not explain ---- */

/* All are counted. */
static void fit(struct clp_control *c, const double *total)
{
    struct clp_control_total t = {total ? *total : 0, c->estimated};
    clp_control_fit(c, total ? &t : NULL);
}

static void one_epoch(struct clp_control *c, const struct clp_threshold_totals *t,
                      const double *total)
{
    clp_control_begin(c);
    clp_control_add(c, t);
    fit(c, total);
}

static const struct clp_threshold_totals ten_mb = {.count = 1e4, .sum = 1e7, .members = 98};

static void test_a_surplus_is_not_spread(void **state)
{
    struct clp_control c = control_new();
    const double total = 1.1e8, next = 1.001e7;
    (void)state;
    one_epoch(&c, &ten_mb, &total);
    assert_true(clp_control_factor(&c, &ten_mb) == 1);
    one_epoch(&c, &ten_mb, &next);
    assert_true(clp_control_factor(&c, &ten_mb) == 1);
    assert_true(fabs(clp_control_rest(&c) - (total + next - 2e7)) < 1);
    assert_true(clp_control_rest(&c) == 0);
}

/* The bytes of a large object came in one epoch, its event in the next. */
static void test_an_event_that_comes_later(void **state)
{
    struct clp_control c = control_new();
    const double first = 1.1e8, second = 1e7;
    const struct clp_threshold_totals large = {.count = 1, .sum = 1e8, .members = 1};
    (void)state;
    one_epoch(&c, &ten_mb, &first);
    clp_control_begin(&c);
    clp_control_add(&c, &ten_mb);
    clp_control_add(&c, &large);
    fit(&c, &second);
    assert_true(fabs(clp_control_factor(&c, &ten_mb) - 1) < 1e-9);
    assert_true(fabs(clp_control_factor(&c, &large) - 1) < 1e-9);
    assert_true(clp_control_rest(&c) < 1);
}

/* Another tool's session makes each event come twice. */
static void test_twice_as_many_are_scaled_down(void **state)
{
    struct clp_control c = control_new();
    const double total = 5e6, nothing = 0;
    (void)state;
    one_epoch(&c, &ten_mb, &total);
    assert_true(fabs(clp_control_factor(&c, &ten_mb) - 0.5) < 1e-9);
    one_epoch(&c, &ten_mb, &nothing);
    assert_true(clp_control_factor(&c, &ten_mb) > 0);
    assert_true(clp_control_factor(&c, &ten_mb) < 1e-5);
}

static void test_an_unknown_total_changes_nothing(void **state)
{
    struct clp_control c = control_new();
    const double total = 1.001e7;
    (void)state;
    one_epoch(&c, &ten_mb, NULL);
    assert_true(clp_control_factor(&c, &ten_mb) == 1);
    assert_true(c.counted == 0);
    one_epoch(&c, &ten_mb, &total);
    assert_true(fabs(clp_control_factor(&c, &ten_mb) * 1e7 - total) < 1);
}

/* Of two threads one is counted: what the other's samples say stays. */
static void test_what_is_not_counted_stays_an_estimate(void **state)
{
    struct clp_control c = control_new();
    const struct clp_control_total half = {4.5e6, 4e6};
    (void)state;
    clp_control_begin(&c);
    clp_control_add(&c, &ten_mb);
    clp_control_fit(&c, &half);
    assert_true(fabs(clp_control_factor(&c, &ten_mb) * 1e7 - (4.5e6 + 6e6)) < 1);
    assert_true(c.counted == 4.5e6);
}

/* Before .NET 10 one sample a MEAN: all classes are scaled alike, however large. */
static void test_ticks_are_scaled_alike(void **state)
{
    struct clp_control c = {.mean = MEAN};
    const struct clp_threshold_totals large = {.count = 2, .sum = 1e7, .members = 2};
    const double total = 2.02e7;
    (void)state;
    clp_control_begin(&c);
    clp_control_add(&c, &ten_mb);
    clp_control_add(&c, &large);
    fit(&c, &total);
    assert_true(fabs(clp_control_factor(&c, &ten_mb) - 1.01) < 1e-9);
    assert_true(fabs(clp_control_factor(&c, &large) - 1.01) < 1e-9);
}

static void test_nothing_at_all(void **state)
{
    struct clp_control c = control_new();
    const struct clp_threshold_totals none = {0};
    const double nothing = 0, some = 4096;
    (void)state;
    one_epoch(&c, &none, &nothing);
    assert_true(clp_control_factor(&c, &none) == 1);
    one_epoch(&c, &none, &some);
    one_epoch(&c, &none, &some);
    assert_true(clp_control_rest(&c) == 8192);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_samples),
        cmocka_unit_test(test_beside_large_objects),
        cmocka_unit_test(test_few_samples),
        cmocka_unit_test(test_certain_ones_stay_as_they_are),
        cmocka_unit_test(test_a_surplus_is_not_spread),
        cmocka_unit_test(test_an_event_that_comes_later),
        cmocka_unit_test(test_twice_as_many_are_scaled_down),
        cmocka_unit_test(test_an_unknown_total_changes_nothing),
        cmocka_unit_test(test_what_is_not_counted_stays_an_estimate),
        cmocka_unit_test(test_ticks_are_scaled_alike),
        cmocka_unit_test(test_nothing_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
