/* Waits for many locks, from the offers of callbacks to what is written: right in all, and in the
 * mean for each kind of wait, however few of a lock are kept. And allocations, whose sum is given.
 */
#include "sampler/inproc/event_sized.h"

#include "tests/unit/clp-cmocka.h"

#include <math.h>

enum { SHORT, LONG, KINDS };
#define RUNS 60u
#define EPOCHS 20u
#define WAITS 4000u    /* in an epoch */
#define TARGET 600u    /* of them are kept */
#define T_QUANTILE 2.3 /* of Student's t, 59 degrees of freedom, 0.05 / 4 at each side */

static uint64_t seed;
static double told_count[KINDS], told_ns[KINDS], true_count[KINDS], true_ns[KINDS];

static void on_event(void *user, const struct clp_feed_event *e)
{
    (void)user;
    told_count[e->number] += e->value;
    told_ns[e->number] += e->value2;
}

static void on_frames(void *user, const struct clp_thread *thread, const uint64_t *frames,
                      uint16_t count)
{
    (void)user;
    (void)thread;
    (void)frames;
    (void)count;
}

static const struct clp_events_sink sink = {.event = on_event, .define = on_frames};

/* As the callback and the loop do. */
static void wait_for(uint64_t lock, unsigned kind, uint64_t ns)
{
    struct clp_threshold *t = &clp_event_locks.threshold;
    struct clp_threshold_member m =
        clp_threshold_offer(t, lock, CLP_THRESHOLD_COUNT_ONE, ns, 0, clp_random_unit(&seed));
    true_count[kind] += 1;
    true_ns[kind] += (double)ns;
    if (m.chance <= 0)
        return;
    struct clp_event e = {.type = CLP_EVENT_LOCK, .number = kind};
    clp_event_sized_mark(&e, &m);
    e.value = 1 / m.chance;
    e.value2 = (double)ns / m.chance;
    assert_non_null(clp_event_sized_take(&clp_event_locks, &e, 1, &sink));
}

/* One in five is long, by Pareto's law with a mean of 21 ms. */
static void epoch(uint32_t locks)
{
    for (uint32_t i = 0; i < WAITS; i++) {
        unsigned kind = clp_random_unit(&seed) < 0.2 ? LONG : SHORT;
        double ms = kind == LONG ? fmin(200, 7 / pow(1 - clp_random_unit(&seed), 1 / 1.5)) : 4;
        wait_for(1 + i % locks, kind, (uint64_t)(ms * 1e6));
    }
    clp_event_sized_turn(&clp_event_locks);
    clp_event_sized_settle(&clp_event_locks, 1, 1, false, NULL, &sink);
    clp_event_members_reset();
}

struct errors {
    double sum, squares;
};

static void add(struct errors *e, double told, double truth)
{
    double error = told / truth - 1;
    e->sum += error;
    e->squares += error * error;
}

static void assert_unbiased(const struct errors *e, double margin, const char *what)
{
    double mean = e->sum / RUNS;
    double variance = (e->squares - RUNS * mean * mean) / (RUNS - 1);
    double reach = T_QUANTILE * sqrt(variance / RUNS);
    if (!(fabs(mean) + reach < margin))
        fail_msg("%s: %+.4f +- %.4f is not within %.4f", what, mean, reach, margin);
}

static void run(uint32_t locks, struct errors *counts, struct errors *times)
{
    for (unsigned k = 0; k < KINDS; k++)
        told_count[k] = told_ns[k] = true_count[k] = true_ns[k] = 0;
    for (unsigned i = 0; i < EPOCHS; i++)
        epoch(locks);
    assert_true(fabs(told_count[SHORT] + told_count[LONG] - EPOCHS * WAITS) < 0.01);
    assert_true(fabs(told_ns[SHORT] + told_ns[LONG] - true_ns[SHORT] - true_ns[LONG]) < 1000);
    for (unsigned k = 0; k < KINDS; k++) {
        add(&counts[k], told_count[k], true_count[k]);
        add(&times[k], told_ns[k], true_ns[k]);
    }
}

static void assert_locks(uint32_t locks)
{
    struct errors counts[KINDS] = {{0}}, times[KINDS] = {{0}};
    seed = 0x9e3779b97f4a7c15ull + locks;
    for (unsigned i = 0; i < RUNS; i++)
        run(locks, counts, times);
    assert_unbiased(&counts[SHORT], 0.01, "short waits");
    assert_unbiased(&counts[LONG], 0.02, "long waits");
    assert_unbiased(&times[SHORT], 0.02, "time of short waits");
    assert_unbiased(&times[LONG], 0.02, "time of long waits");
}

static void few_locks(void **state)
{
    (void)state;
    assert_locks(4);
}

/* Some more than FEW are kept of each, or somewhat less. */
static void forty_locks(void **state)
{
    (void)state;
    assert_locks(40);
}

static void locks_of_which_one_or_two_waits_are_kept(void **state)
{
    (void)state;
    assert_locks(400);
}

/* ---- allocations, whose bytes are known in all ---- */

#define KEPT 100u
#define MEAN 102400.0

/* Samples of objects of `size` bytes, `n` of them; gives the bytes that they stand for. Where
 * `lost`, none finds room in the ring. */
static double allocate(uint64_t key, double size, uint32_t n, bool lost)
{
    double objects = 1 / clp_sampled_chance(size, MEAN), sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t count = (uint64_t)(objects * CLP_THRESHOLD_COUNT_ONE);
        uint64_t bytes = (uint64_t)(objects * size);
        struct clp_threshold_member m = clp_threshold_offer(&clp_event_allocs.threshold, key, count,
                                                            bytes, 0, clp_random_unit(&seed));
        sum += (double)bytes;
        if (m.chance <= 0 || lost)
            continue;
        struct clp_event e = {.type = CLP_EVENT_ALLOC};
        clp_event_sized_mark(&e, &m);
        e.value = objects / m.chance;
        e.value2 = (double)bytes / m.chance;
        assert_non_null(clp_event_sized_take(&clp_event_allocs, &e, 1, &sink));
    }
    return sum;
}

static void settle_allocs(double sampled, double counted, bool flush)
{
    const struct clp_control_total total = {counted, sampled};
    clp_event_sized_turn(&clp_event_allocs);
    clp_event_sized_settle(&clp_event_allocs, 1, 1, flush, &total, &sink);
    clp_event_members_reset();
}

/* Also of classes whose stacks are lost, now and then or always, and where more was counted than
 * chance explains: all of it is told, once. */
static void bytes_are_what_was_counted(void **state)
{
    double counted = 0;
    (void)state;
    seed = 1;
    told_ns[0] = 0;
    clp_event_sized_init(&clp_event_allocs, CLP_SAMPLE_ALLOC, KEPT, false);
    clp_event_allocs.control.mean = MEAN;
    clp_event_allocs.control.random = true;
    for (unsigned i = 0; i < EPOCHS; i++) {
        double sampled = allocate(3, 48, 300, false) + allocate(5, 20000, 200, i % 2) +
                         allocate(7, 300, 2, true) + allocate(9, 4e6, 1, false);
        double total = sampled * (0.96 + 0.08 * clp_random_unit(&seed)) + (i == 8 ? 1e9 : 0);
        settle_allocs(sampled, total, i + 1 == EPOCHS);
        counted += total;
    }
    assert_true(fabs(told_ns[0] - counted) < 1);
    assert_true(fabs(clp_event_allocs.accounted_sum - counted) < 1);
    assert_true(fabs(clp_event_allocs.control.counted - counted) < 1);
}

static int set_up(void **state)
{
    (void)state;
    clp_event_sized_init(&clp_event_locks, CLP_SAMPLE_LOCK, TARGET, true);
    return clp_event_members_init();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_locks),
        cmocka_unit_test(forty_locks),
        cmocka_unit_test(locks_of_which_one_or_two_waits_are_kept),
        cmocka_unit_test(bytes_are_what_was_counted),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
