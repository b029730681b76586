/* Stacks of threads that do not run, taken without a signal: never a torn one. */
#include "tests/unit/clp-cmocka.h"

#include "sampler/inproc/clock.h"
#include "sampler/inproc/wall_shot.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WORDS 512u /* of the pattern that a thread keeps on its stack */
#define WAKERS 4u

static void texts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int result, call;
        uint64_t sp, pc;
    } cases[] = {
        {"running\n", -EBUSY, 0, 0, 0},
        {"-1 0x7ffd1000 0x401000\n", 0, -1, 0x7ffd1000, 0x401000},
        {"202 0x7f1 0x80 0x2 0x0 0x0 0xffffffff 0x7f00abcdef00 0x7f1234567890\n", 0, 202,
         0x7f00abcdef00, 0x7f1234567890},
        {"0 0x0 0x0 0x0 0x0 0x0 0x0 0xffffffffffffffff 0x1", 0, 0, UINT64_MAX, 1},
        {"", -EBADMSG, 0, 0, 0},
        {"-1 0x7ffd1000\n", -EBADMSG, 0, 0, 0},
        {"-2 0x1 0x2\n", -EBADMSG, 0, 0, 0},
        {"202 0x1 0x2\n", -EBADMSG, 0, 0, 0},
        {"9999 0x0 0x0 0x0 0x0 0x0 0x0 0x1 0x2\n", -EBADMSG, 0, 0, 0},
        {"1 0x0 0x0 0x0 0x0 0x0 0x0 0x1ffffffffffffffff 0x2\n", -EBADMSG, 0, 0, 0},
        {"1 0x0 0x0 0x0 0x0 0x0 0x0 0x1 0x2 0x3\n", -EBADMSG, 0, 0, 0},
        {"1 0x0 0x0 0x0 0x0 0x0 0x0 0x1 0x2x\n", -EBADMSG, 0, 0, 0},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(cases); i++) {
        int32_t call = 7;
        uint64_t sp = 7, pc = 7;
        int r = clp_wall_shot_parse(cases[i].text, strlen(cases[i].text), &call, &sp, &pc);
        assert_int_equal(r, cases[i].result);
        assert_int_equal(call, r == 0 ? cases[i].call : 7);
        assert_true(sp == (r == 0 ? cases[i].sp : 7) && pc == (r == 0 ? cases[i].pc : 7));
    }
}

/* ---- threads ---- */

struct waker {
    pthread_t thread;
    _Atomic int32_t tid;
    _Atomic uint64_t pattern; /* where it lies */
    _Atomic bool stop;
    long pause_ns;
};

/* The whole pattern says one number while the thread sleeps, and another at each wake-up: a copy
 * that spans a wake-up would hold two. */
static void *wake(void *arg)
{
    struct waker *w = arg;
    volatile uint64_t pattern[WORDS];
    const struct timespec pause = {0, w->pause_ns};
    uint64_t n = 0xabcd000000000000ull, seen = 0;
    for (unsigned i = 0; i < WORDS; i++)
        pattern[i] = n;
    w->pattern = (uint64_t)(uintptr_t)pattern;
    w->tid = (int32_t)syscall(SYS_gettid);
    while (!w->stop) {
        n++;
        for (unsigned i = 0; i < WORDS; i++)
            pattern[i] = n;
        nanosleep(&pause, NULL);
        seen += pattern[n % WORDS];
    }
    return (void *)(uintptr_t)(seen != 0);
}

static void start(struct waker *w, long pause_ns)
{
    *w = (struct waker){.pause_ns = pause_ns};
    assert_int_equal(pthread_create(&w->thread, NULL, wake, w), 0);
    while (!w->tid)
        usleep(100);
}

static void finish(struct waker *w)
{
    w->stop = true;
    pthread_join(w->thread, NULL);
}

/* Does the copy hold the whole pattern, and one number in all of it? */
static bool holds_one_number(const struct clp_stack_view *stack, uint64_t pattern)
{
    uint64_t first, v;
    assert_true(clp_stack_u64(stack, pattern, &first));
    assert_int_equal(first >> 48, 0xabcd);
    for (unsigned i = 1; i < WORDS; i++) {
        assert_true(clp_stack_u64(stack, pattern + 8ull * i, &v));
        if (v != first)
            return false;
    }
    return true;
}

static int shoot(const struct waker *w, struct clp_wall_shot *ret)
{
    static const struct clp_thread_slot no_bounds;
    return clp_wall_shot_take(w->tid, (uint32_t)w->tid, &no_bounds, CLP_WALL_COPY_MIN, 0, 0, ret);
}

static void no_torn_stack(void **state)
{
    (void)state;
    struct waker w[WAKERS];
    struct clp_wall_shot shot;
    unsigned taken = 0, refused = 0;
    assert_int_equal(clp_wall_shot_init(false), 0);
    for (unsigned i = 0; i < WAKERS; i++)
        start(&w[i], 20000);
    uint64_t until = clp_clock_monotonic_ns() + 2 * CLP_NSEC_PER_SEC;
    for (unsigned i = 0; clp_clock_monotonic_ns() < until; i++) {
        int r = shoot(&w[i % WAKERS], &shot);
        if (r < 0) {
            assert_true(r == -EAGAIN || r == -EBUSY);
            refused++;
            continue;
        }
        /* Elsewhere than in its sleep it may stand within the loop. */
        if (shot.call != SYS_clock_nanosleep)
            continue;
        assert_true(holds_one_number(&shot.in.stack, w[i % WAKERS].pattern));
        taken++;
    }
    for (unsigned i = 0; i < WAKERS; i++)
        finish(&w[i]);
    clp_wall_shot_close();
    print_message("%u stacks taken, %u refused\n", taken, refused);
    assert_true(taken > 100);
}

static void a_sleeper_s_call_and_place(void **state)
{
    (void)state;
    struct waker w;
    struct clp_wall_shot shot;
    assert_int_equal(clp_wall_shot_init(true), 0);
    start(&w, 300000000);
    usleep(50000);
    assert_int_equal(shoot(&w, &shot), 0);
    assert_int_equal(shot.call, SYS_clock_nanosleep);
    assert_true(shot.in.regs.unknown & 1u << CLP_REG_RBP);
    assert_false(shot.in.regs.unknown & (1u << CLP_REG_RSP | 1u << CLP_REG_RIP));
    assert_int_equal(shot.in.stack.low, shot.in.regs.r[CLP_REG_RSP]);
    uint64_t clock;
    assert_int_equal(clp_clock_thread_ns(w.tid, &clock), 0);
    assert_int_equal(shot.clock_ns, clock); /* nobody has woken it */
    int32_t gone = w.tid;
    finish(&w);
    while (clp_clock_thread_ns(gone, &clock) == 0)
        usleep(1000); /* the kernel takes a moment */
    assert_int_equal(shoot(&w, &shot), -ESRCH);
    clp_wall_shot_forget((uint32_t)gone);
    clp_wall_shot_close();
}

static void one_that_runs_is_refused(void **state)
{
    (void)state;
    struct clp_wall_shot shot;
    const struct waker self = {.tid = (int32_t)syscall(SYS_gettid)};
    assert_int_equal(clp_wall_shot_init(true), 0);
    int r = shoot(&self, &shot);
    assert_true(r == -EBUSY || r == -EAGAIN);
    uint64_t delay;
    r = clp_wall_shot_delay(self.tid, (uint32_t)self.tid, &delay);
    assert_true(r == 0 || r == -ENODATA || r == -ENOENT);
    assert_true(clp_wall_shot_delay(0x3fffffff, 5, &delay) < 0);
    clp_wall_shot_close();
}

static void *end_at_once(void *arg)
{
    *(_Atomic int32_t *)arg = (int32_t)syscall(SYS_gettid);
    return NULL;
}

/* Threads that end while they are looked at: their stacks go away under the copy. */
static void threads_may_end_meanwhile(void **state)
{
    (void)state;
    assert_int_equal(clp_wall_shot_init(true), 0);
    for (unsigned i = 0; i < 2000; i++) {
        struct waker w = {.tid = 0};
        struct clp_wall_shot shot;
        assert_int_equal(pthread_create(&w.thread, NULL, end_at_once, &w.tid), 0);
        while (!w.tid)
            ;
        for (unsigned k = 0; k < 3; k++)
            (void)!shoot(&w, &shot);
        pthread_join(w.thread, NULL);
        clp_wall_shot_forget((uint32_t)w.tid);
    }
    clp_wall_shot_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),
        cmocka_unit_test(no_torn_stack),
        cmocka_unit_test(a_sleeper_s_call_and_place),
        cmocka_unit_test(one_that_runs_is_refused),
        cmocka_unit_test(threads_may_end_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
