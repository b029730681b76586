/* Remembered walks: learnt from a copied stack, followed on the real one. The stack here is an
 * array with return addresses where frames would have them. */
#include "sampler/inproc/event_path.h"

#include "tests/unit/clp-cmocka.h"

#include <stdlib.h>
#include <string.h>

#define WORDS 64u

struct stack {
    uint64_t words[WORDS];
    struct clp_walk_frame frames[5];
};

/* Frame 0 is ours, 1 to 3 the runtime's, 4 the method that throws. */
static void build(struct stack *s, uint64_t method)
{
    static const uint32_t slots[] = {2, 9, 20, 33};
    const uint64_t returns[] = {0x1000, 0x2000, 0x3000, method};
    memset(s, 0, sizeof(*s));
    for (unsigned i = 0; i < 4; i++) {
        s->words[slots[i]] = returns[i];
        s->frames[i].cfa = (uint64_t)(uintptr_t)&s->words[slots[i]] + 8;
        s->frames[i + 1].address = returns[i] - 1;
    }
}

static uint64_t base_of(const struct stack *s)
{
    return (uint64_t)(uintptr_t)&s->words[1];
}

static uint64_t high_of(const struct stack *s)
{
    return (uint64_t)(uintptr_t)&s->words[WORDS];
}

static bool learn(const struct stack *s)
{
    struct clp_capture *c = calloc(1, sizeof(*c) + sizeof(s->words));
    struct clp_event e = {.base = base_of(s)};
    assert_non_null(c);
    c->rsp = (uint64_t)(uintptr_t)s->words;
    c->stack_bytes = sizeof(s->words);
    memcpy(c->stack, s->words, sizeof(s->words));
    bool known = clp_event_path_learn(&e, c, s->frames, 4);
    free(c);
    return known;
}

static int forget(void **state)
{
    (void)state;
    clp_event_path_forget();
    return 0;
}

static uint64_t find(const struct stack *s)
{
    uint32_t hint = 0;
    return clp_event_path_find(base_of(s), high_of(s), &hint);
}

static void test_another_method_behind_the_same_frames(void **state)
{
    struct stack a, b;
    (void)state;
    build(&a, 0x7777);
    build(&b, 0x8888);
    assert_int_equal(find(&a), 0);
    assert_true(learn(&a));
    assert_int_equal(find(&a), 0x7777);
    assert_int_equal(find(&b), 0x8888);
}

static void test_other_frames_are_another_path(void **state)
{
    struct stack a, b;
    (void)state;
    build(&a, 0x7777);
    build(&b, 0x8888);
    assert_true(learn(&a));
    b.words[20] = 0x3004; /* called from another place of the same function */
    b.frames[3].address = 0x3003;
    assert_int_equal(find(&b), 0);
    assert_true(learn(&b));
    assert_int_equal(find(&b), 0x8888);
    assert_int_equal(find(&a), 0x7777);
}

static void test_a_walk_that_the_stack_does_not_confirm(void **state)
{
    struct stack a;
    (void)state;
    build(&a, 0x7777);
    a.frames[2].address++; /* an interrupted instruction, not a call */
    assert_false(learn(&a));
    build(&a, 0x7777);
    a.frames[1].cfa = 0;
    assert_false(learn(&a));
    build(&a, 0x7777);
    a.words[33] = 0;
    assert_false(learn(&a));
    assert_int_equal(find(&a), 0);
}

static void test_nothing_is_read_beyond_the_stack(void **state)
{
    struct stack a;
    uint32_t hint = 0;
    (void)state;
    build(&a, 0x7777);
    assert_true(learn(&a));
    uint64_t site = (uint64_t)(uintptr_t)&a.words[33];
    assert_int_equal(clp_event_path_find(base_of(&a), site + 7, &hint), 0);
    assert_int_equal(clp_event_path_find(base_of(&a), site + 8, &hint), 0x7777);
    assert_int_equal(clp_event_path_find(base_of(&a), 0, &hint), 0);
}

/* More paths than there is room for: the last ones are known, none gives a wrong answer. */
static void test_room_for_paths_is_bounded(void **state)
{
    static struct stack all[100];
    (void)state;
    for (unsigned i = 0; i < CLP_ARRAY_LEN(all); i++) {
        build(&all[i], 0x9000 + i);
        all[i].words[9] = 0x100000 + 16 * i;
        all[i].frames[2].address = 0x100000 + 16 * i - 1;
        assert_true(learn(&all[i]));
    }
    for (unsigned i = 0; i < CLP_ARRAY_LEN(all); i++)
        assert_int_equal(find(&all[i]), i < CLP_ARRAY_LEN(all) - 32 ? 0 : 0x9000 + i);
    clp_event_path_forget();
    assert_int_equal(find(&all[99]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_another_method_behind_the_same_frames, forget),
        cmocka_unit_test_setup(test_other_frames_are_another_path, forget),
        cmocka_unit_test_setup(test_a_walk_that_the_stack_does_not_confirm, forget),
        cmocka_unit_test_setup(test_nothing_is_read_beyond_the_stack, forget),
        cmocka_unit_test_setup(test_room_for_paths_is_bounded, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
