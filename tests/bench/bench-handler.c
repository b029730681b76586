/* What a sample costs the thread that is interrupted: the handler at about 7 KB of stack.
 *
 * `called`: the handler is called in a loop; the difference of two clock readings around each call.
 * `interrupted`: real CPU-clock timers strike a thread that stands 7 KB deep in its stack; a
 * wrapper around the handler takes the readings. What the kernel needs to deliver the signal is not
 * in either. Prints both distributions; exits with 1 when a median exceeds the limit. */
#include "sampler/inproc/clock.h"
#include "sampler/inproc/timers.h"
#include "tests/unit/capture-harness.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define STACK_BYTES 7168
#define LIMIT_NS 3000.0
#define BATCHES 4
#define ROUNDS 20000
#define STRIKES_MAX 20000

static double took[ROUNDS > STRIKES_MAX ? ROUNDS : STRIKES_MAX];
static _Atomic uint32_t taken;
static double clock_cost_ns;

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double print_distribution(const char *what, double *ns, size_t n, uint64_t bytes)
{
    qsort(ns, n, sizeof(*ns), by_size);
    printf("handler, %s: %zu samples of %llu bytes: median %.0f ns, 90 %% %.0f, 99 %% %.0f, "
           "least %.0f\n",
           what, n, (unsigned long long)bytes, ns[n / 2], ns[n * 9 / 10], ns[n * 99 / 100], ns[0]);
    return ns[n / 2];
}

static void measure_the_clock(void)
{
    uint64_t from = clp_clock_monotonic_ns();
    for (int i = 0; i < 10000; i++)
        (void)clp_clock_monotonic_ns();
    clock_cost_ns = (double)(clp_clock_monotonic_ns() - from) / 10000;
}

/* ---- called in a loop ---- */

static double called(void)
{
    uint8_t stack[STACK_BYTES];
    memset(stack, 0x5a, sizeof(stack));
    struct clp_thread_slot *s = clp_capture_slot(1000);
    uint32_t generation = 1;
    int32_t id;
    ucontext_t uc;
    siginfo_t info = {.si_code = SI_TIMER};
    if (clp_timer_create(harness_tid(), clp_capture_tag(0xffff, 1), &id) < 0)
        return -1;
    memset(&uc, 0, sizeof(uc));
    uc.uc_mcontext.gregs[REG_RSP] = (greg_t)(uintptr_t)stack;
    atomic_store(&s->generation, generation);
    atomic_store(&s->stack_low, (uint64_t)(uintptr_t)stack);
    atomic_store(&s->stack_high, (uint64_t)(uintptr_t)(stack + sizeof(stack)));
    atomic_store(&s->timer_id, id);
    s->random = 1;
    info.si_timerid = id;
    info.si_value.sival_ptr = (void *)(uintptr_t)clp_capture_tag(1000, generation);
    clp_capture_enable(true);
    clp_capture_set_interval(CLP_NSEC_PER_SEC); /* re-armed each time, never expires */
    uint64_t bytes = 0;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t from = clp_clock_monotonic_ns();
        clp_capture_handler(SIGRTMIN, &info, &uc);
        took[i] = (double)(clp_clock_monotonic_ns() - from) - clock_cost_ns;
        const struct clp_capture *c = clp_capture_peek();
        if (!c)
            return -1;
        bytes = c->stack_bytes;
        clp_capture_release(c);
    }
    clp_timer_delete(id);
    atomic_store(&s->generation, 0);
    clp_capture_enable(false);
    return print_distribution("called", took, ROUNDS, bytes);
}

/* ---- interrupted by real timers ---- */

static void timed_handler(int sig, siginfo_t *info, void *uc)
{
    uint64_t from = clp_clock_monotonic_ns();
    clp_capture_handler(sig, info, uc);
    double ns = (double)(clp_clock_monotonic_ns() - from) - clock_cost_ns;
    uint32_t i = atomic_fetch_add(&taken, 1);
    if (i < STRIKES_MAX)
        took[i] = ns;
}

static _Atomic bool stop;
static _Atomic int32_t deep_tid;

static __attribute__((noinline)) uint64_t burn_below(void)
{
    volatile uint8_t frames[STACK_BYTES - 1920]; /* the thread's start has some, too */
    uint64_t x = 1;
    memset((void *)(uintptr_t)frames, 0x33, sizeof(frames));
    while (!stop)
        for (int i = 0; i < 1000; i++)
            x = x * 6364136223846793005ull + frames[x % sizeof(frames)];
    return x;
}

static void *burn_deep(void *arg)
{
    deep_tid = harness_tid();
    clp_threads_assigned((uint64_t)(uintptr_t)arg, deep_tid);
    uint64_t x = burn_below();
    clp_threads_destroyed((uint64_t)(uintptr_t)arg);
    return (void *)(uintptr_t)(x & 1);
}

static double interrupted(void)
{
    pthread_t t;
    stop = false;
    taken = 0;
    harness_start(CLP_NSEC_PER_MSEC, false); /* the tick is the limit */
    if (pthread_create(&t, NULL, burn_deep, &took) != 0)
        return -1;
    harness_loop(4 * CLP_NSEC_PER_SEC);
    stop = true;
    pthread_join(t, NULL);
    harness_stop();
    uint32_t n = CLP_MIN(taken, STRIKES_MAX);
    const struct harness_sum *s = harness_by_tid(deep_tid);
    if (n < 20 || !s || !s->samples)
        return -1;
    return print_distribution("interrupted", took, n, s->stack_bytes / s->samples);
}

static void wrap_the_handler(void)
{
    struct sigaction a;
    sigaction(SIGRTMIN, NULL, &a);
    a.sa_sigaction = timed_handler;
    sigaction(SIGRTMIN, &a, NULL);
}

int main(void)
{
    harness_init();
    measure_the_clock();
    double a = called();
    wrap_the_handler();
    /* On a loaded machine others drive our lines out of the caches: the best of a few batches. */
    double b = interrupted();
    for (int i = 1; i < BATCHES && (b < 0 || b > LIMIT_NS); i++) {
        double again = interrupted();
        b = b < 0 || (again >= 0 && again < b) ? again : b;
    }
    if (a < 0 || b < 0) {
        fprintf(stderr, "bench-handler: no samples\n");
        return 1;
    }
    return a <= LIMIT_NS && b <= LIMIT_NS ? 0 : 1;
}
