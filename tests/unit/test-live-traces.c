/* Stacks of live objects: each once, and their places used again. */
#include "sampler/inproc/live_traces.h"

#include "tests/unit/clp-cmocka.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static uint32_t take(uint64_t first, uint16_t count, const char *text)
{
    uint64_t frames[2000];
    for (uint16_t i = 0; i < count; i++)
        frames[i] = first + i;
    return clp_live_traces_take(frames, count, 0, text, (uint16_t)strlen(text));
}

static void is(uint32_t number, uint64_t first, uint16_t count, const char *text)
{
    const struct clp_live_trace *t = clp_live_traces_at(number);
    assert_int_equal(t->number, number);
    assert_int_equal(t->count, count);
    for (uint16_t i = 0; i < count; i++)
        assert_int_equal(t->frames[i], first + i);
    assert_int_equal(t->text_len, strlen(text));
    assert_memory_equal(clp_live_trace_text(t), text, t->text_len);
}

static int setup(void **state)
{
    (void)state;
    return clp_live_traces_init();
}

static void each_is_kept_once(void **state)
{
    (void)state;
    uint32_t a = take(1, 5, "A"), b = take(1, 5, "B"), c = take(1, 6, "A");
    assert_int_equal(take(1, 5, "A"), a);
    assert_true(a != b && b != c && a != c);
    is(a, 1, 5, "A");
    is(b, 1, 5, "B");
    is(c, 1, 6, "A");
    clp_live_traces_drop(a);
    clp_live_traces_drop(a);
    assert_int_equal(take(1, 5, "A"), a); /* nothing has moved yet */
    clp_live_traces_drop(a);
    clp_live_traces_drop(b);
    clp_live_traces_drop(c);
}

static void room_is_used_again(void **state)
{
    (void)state;
    uint32_t kept[3] = {take(100, 50, "first"), take(200, 1, ""), 0};
    for (uint64_t i = 0; i < 5000; i++) { /* 40 MB in all */
        uint32_t n = take(1000000 + i * 3000, 1000, "passes");
        assert_true(n != CLP_LIVE_TRACE_NONE);
        if (i == 2500)
            kept[2] = take(300, 20, "third");
        clp_live_traces_drop(n);
    }
    is(kept[0], 100, 50, "first");
    is(kept[1], 200, 1, "");
    is(kept[2], 300, 20, "third");
    assert_int_equal(take(300, 20, "third"), kept[2]);
    clp_live_traces_drop(kept[2]);
    for (unsigned i = 0; i < 3; i++)
        clp_live_traces_drop(kept[i]);
}

static void full_of_bytes(void **state)
{
    (void)state;
    uint32_t n, count = 0, numbers[2000];
    while ((n = take(1 + count * 5000ull, 1000, "x")) != CLP_LIVE_TRACE_NONE)
        numbers[count++] = n;
    assert_in_range(count, 100, CLP_LIVE_TRACES_BYTES / 8000);
    clp_live_traces_drop(numbers[count / 2]);
    assert_int_not_equal(take(7, 1000, "y"), CLP_LIVE_TRACE_NONE);
    assert_int_equal(take(9, 1000, "y"), CLP_LIVE_TRACE_NONE);
    uint32_t last = take(7, 1000, "y");
    clp_live_traces_drop(last);
    clp_live_traces_drop(last);
    for (uint32_t i = 0; i < count; i++)
        if (i != count / 2)
            clp_live_traces_drop(numbers[i]);
}

static void full_of_numbers(void **state)
{
    (void)state;
    static uint32_t numbers[CLP_LIVE_TRACES_MAX];
    uint32_t count = 0, n;
    while (count < CLP_LIVE_TRACES_MAX &&
           (n = take(1ull << 40 | count, 1, "")) != CLP_LIVE_TRACE_NONE)
        numbers[count++] = n;
    assert_true(count > CLP_LIVE_TRACES_MAX / 2);
    assert_int_equal(take(5, 1, "z"), CLP_LIVE_TRACE_NONE);
    for (uint32_t i = 0; i < count; i++)
        is(numbers[i], 1ull << 40 | i, 1, "");
    for (uint32_t i = 0; i < count; i += 2)
        clp_live_traces_drop(numbers[i]);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_not_equal(take(1ull << 50 | i, 1, ""), CLP_LIVE_TRACE_NONE);
    for (uint32_t i = 1; i < count; i += 2)
        is(numbers[i], 1ull << 40 | i, 1, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_kept_once),
        cmocka_unit_test(room_is_used_again),
        cmocka_unit_test(full_of_bytes),
        cmocka_unit_test(full_of_numbers),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
