#include "tests/unit/clp-cmocka.h"

#include "sampler/inproc/code_index.h"

#include <stdlib.h>
#include <string.h>

#define ENTRIES 4000u

static struct clp_code_index x;
static uint64_t starts[ENTRIES + 1]; /* by entry number; 0 = not in the index */
static uint32_t random_state = 12345;

static uint32_t next_random(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

/* What the index must answer, by looking at all entries. */
static uint64_t last_start_up_to(uint64_t address)
{
    uint64_t best = 0;
    for (uint32_t i = 1; i <= ENTRIES; i++)
        if (starts[i] <= address && starts[i] > best)
            best = starts[i];
    return best;
}

static void check_address(uint64_t address)
{
    struct clp_code_place p;
    uint64_t want = last_start_up_to(address);
    bool found = clp_code_index_find(&x, address, &p);
    assert_int_equal(found, want != 0);
    if (found) {
        assert_int_equal(clp_code_index_start(&x, p), want);
        assert_int_equal(starts[clp_code_index_entry(&x, p)], want);
    }
}

/* Forward over everything: sorted, complete, and backward the same. */
static void check_order(uint32_t expected)
{
    struct clp_code_place p = {0};
    uint32_t count = x.count ? 1 : 0;
    uint64_t last = x.count ? clp_code_index_start(&x, p) : 0;
    while (x.count && clp_code_index_after(&x, &p)) {
        assert_true(clp_code_index_start(&x, p) >= last);
        last = clp_code_index_start(&x, p);
        count++;
    }
    assert_int_equal(count, expected);
    uint32_t back = x.count ? 1 : 0;
    while (x.count && clp_code_index_before(&x, &p))
        back++;
    assert_int_equal(back, expected);
}

static int set_up(void **state)
{
    (void)state;
    memset(starts, 0, sizeof(starts));
    return clp_code_index_init(&x, ENTRIES);
}

static int tear_down(void **state)
{
    (void)state;
    clp_code_index_done(&x);
    return 0;
}

static void add(uint32_t entry, uint64_t start)
{
    starts[entry] = start;
    assert_int_equal(clp_code_index_add(&x, start, entry), 0);
}

static void an_empty_index_finds_nothing(void **state)
{
    (void)state;
    struct clp_code_place p;
    assert_false(clp_code_index_find(&x, UINT64_MAX, &p));
    clp_code_index_remove(&x, 5, 5);
    add(1, 100);
    assert_false(clp_code_index_find(&x, 99, &p));
    assert_true(clp_code_index_find(&x, 100, &p));
    clp_code_index_remove(&x, 100, 1);
    assert_false(clp_code_index_find(&x, 100, &p));
}

static void ascending_starts_fill_their_blocks(void **state)
{
    (void)state;
    for (uint32_t i = 1; i <= ENTRIES; i++)
        add(i, i * 64ull);
    check_order(ENTRIES);
    assert_in_range(x.count, ENTRIES / 64, ENTRIES / 64 + 1);
    for (uint64_t a = 0; a < ENTRIES * 64ull + 200; a += 13)
        check_address(a);
}

static void descending_starts_are_sorted(void **state)
{
    (void)state;
    for (uint32_t i = 1; i <= ENTRIES; i++)
        add(i, (ENTRIES + 1 - i) * 64ull);
    check_order(ENTRIES);
    for (uint64_t a = 0; a < ENTRIES * 64ull; a += 17)
        check_address(a);
}

static void random_life_agrees_with_a_plain_list(void **state)
{
    (void)state;
    uint32_t alive = 0;
    for (unsigned step = 0; step < 20000; step++) {
        uint32_t e = next_random() % ENTRIES + 1;
        if (starts[e]) {
            clp_code_index_remove(&x, starts[e], e);
            starts[e] = 0;
            alive--;
        } else {
            add(e, 1 + next_random() % 20000); /* equal starts occur */
            alive++;
        }
        if (step % 37 == 0)
            check_address(next_random() % 21000);
        if (step % 5000 == 0)
            check_order(alive);
    }
    check_order(alive);
    for (uint32_t e = 1; e <= ENTRIES; e++)
        if (starts[e])
            clp_code_index_remove(&x, starts[e], e);
    assert_int_equal(x.count, 0);
    assert_int_equal(x.blocks.used, 0);
}

static void equal_starts_are_all_kept(void **state)
{
    (void)state;
    for (uint32_t i = 1; i <= 500; i++)
        add(i, 4096);
    check_order(500);
    for (uint32_t i = 1; i <= 500; i += 2)
        clp_code_index_remove(&x, 4096, i);
    check_order(250);
    struct clp_code_place p;
    assert_true(clp_code_index_find(&x, 5000, &p));
    assert_int_equal(clp_code_index_entry(&x, p) % 2, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_empty_index_finds_nothing), TEST(ascending_starts_fill_their_blocks),
        TEST(descending_starts_are_sorted), TEST(random_life_agrees_with_a_plain_list),
        TEST(equal_starts_are_all_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
