/* Which live objects are kept: unbiased for any part of them, however they come and die. */
#include "sampler/inproc/live_table.h"

#include "tests/unit/clp-cmocka.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX 1200u
#define RUNS 200u
#define PATHS 3u
#define MEAN 102400.0

/* What a run simulates: an allocation every so many ns of a path, sizes and lives of its own. */
struct path {
    double size;
    double death;                /* chance to be dead at the next collection */
    uint32_t from, until, every; /* steps */
};

struct run {
    struct clp_live_table table;
    struct clp_live_entry entries[MAX];
    uint64_t random;
    uint64_t left; /* entries that were given back */
    uint64_t taken;
    double truth[PATHS], shown[PATHS];
};

static double uniform(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return (double)(*x >> 11) * 0x1p-53;
}

static void leave(void *user, const struct clp_live_entry *e)
{
    struct run *r = user;
    assert_true(e->handle != 0);
    r->left++;
}

static bool is_dead(void *user, const struct clp_live_entry *e)
{
    (void)user;
    return (e->handle & 1) == 0;
}

/* Objects of one path, by the step in which they die; a sampled one carries its own. */
#define STEPS 4000u
#define COLLECT_EVERY 50u
#define MANY 1000.0 /* objects a step and path */

static struct run *begin(uint64_t seed)
{
    struct run *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    r->random = seed * 0x9e3779b97f4a7c15ull + 1;
    r->table = (struct clp_live_table){
        .entries = r->entries, .max = MAX, .random = seed * 77 + 1, .leave = leave, .user = r};
    return r;
}

/* Objects until the next one that is met, that one not counted. */
static double gap(struct run *r, double chance)
{
    return floor(log1p(-uniform(&r->random)) / log1p(-chance));
}

/* Of the objects of a step each is met with 1 - exp(-s/m). */
static void allocate(struct run *r, uint32_t which, const struct path *p, uint32_t step)
{
    double chance = -expm1(-p->size / MEAN);
    r->truth[which] += MANY * p->size;
    for (double at = gap(r, chance); at < MANY; at += 1 + gap(r, chance)) {
        if (r->table.count == MAX)
            clp_live_table_thin(&r->table, MAX / 4 * 3);
        struct clp_live_entry e = {.handle = 1,
                                   .objects = 1 / chance,
                                   .bytes = p->size / chance,
                                   .chance = 1,
                                   .time_ns = step,
                                   .trace = which};
        r->taken++;
        clp_live_table_add(&r->table, &e);
    }
}

/* A collection: of each path a share dies, sampled or not. */
static void collect(struct run *r, const struct path *paths)
{
    for (uint32_t i = 0; i < PATHS; i++)
        r->truth[i] *= 1 - paths[i].death;
    for (uint32_t i = 0; i < r->table.count; i++)
        if (uniform(&r->random) < paths[r->entries[i].trace].death)
            r->entries[i].handle = 2;
    (void)clp_live_table_sweep(&r->table, is_dead);
    clp_live_table_epoch(&r->table, 1);
}

static struct run *simulate(const struct path *paths, uint64_t seed)
{
    struct run *r = begin(seed);
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t i = 0; i < PATHS; i++)
            if (step >= paths[i].from && step < paths[i].until && step % paths[i].every == 0)
                allocate(r, i, &paths[i], step);
        if (step % COLLECT_EVERY == COLLECT_EVERY - 1)
            collect(r, paths);
    }
    for (uint32_t i = 0; i < r->table.count; i++)
        r->shown[r->entries[i].trace] += r->entries[i].bytes / r->entries[i].chance;
    assert_int_equal(r->taken, r->left + r->table.count);
    return r;
}

/* Two one-sided tests at 5 % in all over the paths (Bonferroni): the mean ratio lies within 1 -+
 * margin, with its confidence interval. */
static void is_equivalent(const struct path *paths, double margin)
{
    double sum[PATHS] = {0}, squares[PATHS] = {0}, z = 2.4; /* one-sided 5 % / (2 x 3) */
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        struct run *r = simulate(paths, seed);
        for (unsigned i = 0; i < PATHS; i++) {
            double ratio = r->shown[i] / r->truth[i];
            sum[i] += ratio;
            squares[i] += ratio * ratio;
        }
        free(r);
    }
    for (unsigned i = 0; i < PATHS; i++) {
        double mean = sum[i] / RUNS;
        double variance = squares[i] / RUNS - mean * mean;
        double half = z * sqrt(variance / (RUNS - 1));
        print_message("path %u: %.4f +- %.4f\n", i, mean, half);
        assert_true(mean - half > 1 - margin && mean + half < 1 + margin);
    }
}

static void an_early_leak_beside_churn(void **state)
{
    (void)state;
    const struct path paths[PATHS] = {
        {.size = 1024, .death = 0, .until = STEPS, .every = 10},
        {.size = 2000, .death = 0.8, .until = STEPS, .every = 1},
        {.size = 90000, .death = 0.5, .until = STEPS, .every = 50},
    };
    is_equivalent(paths, 0.04);
}

static void a_leak_that_starts_when_the_table_is_full(void **state)
{
    (void)state;
    const struct path paths[PATHS] = {
        {.size = 1024, .death = 0, .from = STEPS / 2, .until = STEPS, .every = 4},
        {.size = 4000, .death = 0.7, .until = STEPS, .every = 1},
        {.size = 5000, .death = 0, .until = STEPS / 2, .every = 8},
    };
    is_equivalent(paths, 0.04);
}

/* The table fills, empties, and fills again: the threshold comes down for those who come, and what
 * came before keeps its chance. */
static void what_fills_the_table_dies(void **state)
{
    (void)state;
    const struct path paths[PATHS] = {
        {.size = 1024, .death = 0, .until = STEPS, .every = 20},
        {.size = 20000, .death = 0.05, .until = STEPS / 2, .every = 4},
        {.size = 20000, .death = 0.2, .from = STEPS / 2, .until = STEPS, .every = 8},
    };
    is_equivalent(paths, 0.04);
}

/* ---- rules ---- */

static struct clp_live_entry entry(double bytes)
{
    return (struct clp_live_entry){.handle = 1, .objects = 1, .bytes = bytes, .chance = 1};
}

static void all_are_certain_while_there_is_room(void **state)
{
    (void)state;
    struct run *r = begin(3);
    for (unsigned i = 0; i < MAX; i++) {
        struct clp_live_entry e = entry(1 + i);
        clp_live_table_add(&r->table, &e);
    }
    assert_int_equal(r->table.count, MAX);
    for (unsigned i = 0; i < MAX; i++)
        assert_true(r->entries[i].chance == 1);
    free(r);
}

static void large_ones_stay_certain(void **state)
{
    (void)state;
    struct run *r = begin(4);
    for (unsigned i = 0; i < MAX; i++) {
        struct clp_live_entry e = entry(i % 10 ? 100 : 1e6);
        clp_live_table_add(&r->table, &e);
    }
    clp_live_table_thin(&r->table, MAX / 2);
    assert_true(r->table.count <= MAX / 2);
    unsigned large = 0;
    for (unsigned i = 0; i < r->table.count; i++) {
        large += r->entries[i].bytes > 1000;
        assert_true(r->entries[i].bytes > 1000 ? r->entries[i].chance == 1
                                               : r->entries[i].chance < 1);
    }
    assert_int_equal(large, MAX / 10);
    free(r);
}

static void equal_sizes_can_be_thinned_to_nothing_much(void **state)
{
    (void)state;
    struct run *r = begin(5);
    for (unsigned i = 0; i < MAX; i++) {
        struct clp_live_entry e = entry(7);
        clp_live_table_add(&r->table, &e);
    }
    clp_live_table_thin(&r->table, 1);
    assert_true(r->table.count <= 1);
    assert_int_equal(r->left + r->table.count, MAX);
    free(r);
}

static void those_that_came_stand_for_those_that_were_lost(void **state)
{
    (void)state;
    struct run *r = begin(6);
    struct clp_live_entry e = entry(10);
    clp_live_table_add(&r->table, &e);
    clp_live_table_epoch(&r->table, 1);
    clp_live_table_add(&r->table, &e);
    clp_live_table_epoch(&r->table, 4);
    assert_true(r->entries[0].chance == 1);
    assert_true(r->entries[1].chance == 0.25);
    free(r);
}

static void a_full_table_gives_back_what_comes(void **state)
{
    (void)state;
    struct run *r = begin(7);
    struct clp_live_entry e = entry(10);
    for (unsigned i = 0; i < MAX + 1; i++)
        clp_live_table_add(&r->table, &e);
    assert_int_equal(r->table.count, MAX);
    assert_int_equal(r->left, 1);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_early_leak_beside_churn),
        cmocka_unit_test(a_leak_that_starts_when_the_table_is_full),
        cmocka_unit_test(what_fills_the_table_dies),
        cmocka_unit_test(all_are_certain_while_there_is_room),
        cmocka_unit_test(large_ones_stay_certain),
        cmocka_unit_test(equal_sizes_can_be_thinned_to_nothing_much),
        cmocka_unit_test(those_that_came_stand_for_those_that_were_lost),
        cmocka_unit_test(a_full_table_gives_back_what_comes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
