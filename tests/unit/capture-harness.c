#include "tests/unit/capture-harness.h"

#include "sampler/inproc/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

_Atomic uint64_t harness_chained;
_Atomic int harness_chained_code;

static struct harness_sum sums[HARNESS_THREADS];
static uint32_t sum_count;
static uint64_t scan_due_ns;

static void runtime_activation(int sig, siginfo_t *info, void *ucontext)
{
    (void)sig;
    (void)ucontext;
    harness_chained_code = info->si_code;
    harness_chained++;
}

static void runtime_segv(int sig)
{
    (void)sig;
    abort();
}

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "harness: %s\n", what);
    abort();
}

void harness_fake_runtime(bool segv_masks)
{
    struct sigaction segv = {.sa_handler = runtime_segv};
    struct sigaction activation = {.sa_sigaction = runtime_activation,
                                   .sa_flags = SA_SIGINFO | SA_RESTART};
    sigemptyset(&segv.sa_mask);
    sigemptyset(&activation.sa_mask);
    if (segv_masks)
        sigaddset(&segv.sa_mask, SIGRTMIN);
    must(sigaction(SIGSEGV, &segv, NULL) == 0, "sigaction SIGSEGV");
    must(sigaction(SIGRTMIN, &activation, NULL) == 0, "sigaction SIGRTMIN");
}

static struct harness_sum *sum_of(const struct clp_thread *t)
{
    uint32_t i = 0;
    while (i < sum_count && sums[i].thread_id != t->thread_id)
        i++;
    must(i < HARNESS_THREADS, "too many threads");
    if (i == sum_count)
        sums[sum_count++] = (struct harness_sum){.thread_id = t->thread_id};
    sums[i].tid = t->tid;
    sums[i].kind = t->kind;
    memcpy(sums[i].name, t->name, sizeof(sums[i].name));
    return &sums[i];
}

static void on_time(void *user, const struct clp_thread *t, enum clp_special special,
                    uint64_t cpu_ns, uint64_t time_ns)
{
    (void)user;
    must(cpu_ns > 0 && cpu_ns < 1000 * CLP_NSEC_PER_SEC, "an impossible time");
    must(time_ns > 0, "a time without a stamp");
    struct harness_sum *s = sum_of(t);
    must(special != CLP_SPECIAL_NONE || s->samples, "time for a last stack that never was");
    s->special_ns[special] += cpu_ns;
}

void harness_init(void)
{
    static const struct clp_threads_sink sink = {.time = on_time};
    harness_fake_runtime(true);
    must(clp_capture_init(1 << 20, 4096) == 0, "clp_capture_init");
    must(clp_threads_init(4096, &sink) == 0, "clp_threads_init");
    must(clp_signal_install() == 0, "clp_signal_install");
}

void harness_start(uint64_t interval_ns, bool native_stacks)
{
    clp_capture_enable(true);
    clp_threads_start(interval_ns, native_stacks);
    scan_due_ns = 0;
}

static void take(const struct clp_capture *c)
{
    uint64_t value;
    const struct clp_thread *t = clp_threads_account(c, &value);
    if (!t)
        return;
    struct harness_sum *s = sum_of(t);
    if (c->flags & CLP_CAPTURE_NO_BOUNDS) {
        must(value == 0, "a value for a capture without bounds");
        s->without_bounds++;
        return;
    }
    s->samples++;
    s->stacks_ns += value;
    s->stack_bytes += c->stack_bytes;
    s->other_stack += c->flags & CLP_CAPTURE_OTHER_STACK ? 1 : 0;
    s->too_deep += c->flags & CLP_CAPTURE_TOO_DEEP ? 1 : 0;
}

void harness_drain(void)
{
    const struct clp_capture *c;
    while ((c = clp_capture_peek())) {
        take(c);
        clp_capture_release(c);
    }
}

void harness_loop(uint64_t ns)
{
    uint64_t now = clp_clock_monotonic_ns(), end = now + ns;
    const struct timespec pause = {0, 5000000};
    for (; now < end; now = clp_clock_monotonic_ns()) {
        harness_drain();
        if (now >= scan_due_ns)
            scan_due_ns = now + clp_threads_scan(now);
        nanosleep(&pause, NULL);
    }
    harness_drain();
}

static bool all_reached(const struct harness_burner *b, const uint64_t *goal, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t clock;
        if (clp_clock_thread_ns(b[i].tid, &clock) == 0 && clock < goal[i])
            return false;
    }
    return true;
}

void harness_loop_cpu(const struct harness_burner *b, size_t n, uint64_t cpu_ns)
{
    uint64_t goal[64];
    must(n <= CLP_ARRAY_LEN(goal), "too many threads to watch");
    for (size_t i = 0; i < n; i++) {
        must(clp_clock_thread_ns(b[i].tid, &goal[i]) == 0, "a watched thread has gone");
        goal[i] += cpu_ns;
    }
    for (int i = 0; i < 3000 && !all_reached(b, goal, n); i++)
        harness_loop(10 * CLP_NSEC_PER_MSEC);
}

void harness_flush(void)
{
    harness_drain();
    clp_threads_flush(clp_clock_monotonic_ns());
}

void harness_stop(void)
{
    harness_flush();
    clp_threads_stop();
    clp_capture_enable(false);
    harness_drain();
}

void harness_reset_sums(void)
{
    sum_count = 0;
}

struct harness_sum *harness_by_tid(int32_t tid)
{
    for (uint32_t i = sum_count; i-- > 0;)
        if (sums[i].tid == tid && sums[i].kind != CLP_THREAD_PROCESS)
            return &sums[i];
    return NULL;
}

struct harness_sum *harness_by_kind(uint32_t kind)
{
    for (uint32_t i = 0; i < sum_count; i++)
        if (sums[i].kind == kind)
            return &sums[i];
    return NULL;
}

uint64_t harness_total(const struct harness_sum *s)
{
    uint64_t n = s ? s->stacks_ns : 0;
    for (int i = 0; s && i < CLP_SPECIAL_COUNT; i++)
        n += s->special_ns[i];
    return n;
}

uint64_t harness_all(void)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < sum_count; i++)
        n += harness_total(&sums[i]);
    return n;
}

uint64_t harness_special_of_all(enum clp_special special)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < sum_count; i++)
        n += sums[i].special_ns[special];
    return n;
}

uint64_t harness_samples_of_all(void)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < sum_count; i++)
        n += sums[i].samples;
    return n;
}

void harness_print(void)
{
    static const char *const names[] = {
        "last stack",
#define CLP_SPECIAL(id, text) text,
#include "wire/specials.def"
#undef CLP_SPECIAL
    };
    for (uint32_t i = 0; i < sum_count; i++) {
        const struct harness_sum *s = &sums[i];
        printf("# %u tid %d kind %u '%s': %u samples %.2f ms", s->thread_id, s->tid, s->kind,
               s->name, s->samples, (double)s->stacks_ns / 1e6);
        for (int k = 0; k < CLP_SPECIAL_COUNT; k++)
            if (s->special_ns[k])
                printf(", %s %.2f ms", names[k], (double)s->special_ns[k] / 1e6);
        printf("\n");
    }
}

int32_t harness_tid(void)
{
    return (int32_t)syscall(SYS_gettid);
}

void harness_spin(uint64_t cpu_ns)
{
    uint64_t end = clp_clock_self_ns() + cpu_ns;
    while (clp_clock_self_ns() < end)
        for (volatile int i = 0; i < 2000; i++)
            ;
}

static void burst(struct harness_burner *b)
{
    const struct timespec pause = {(time_t)(b->off_ns / CLP_NSEC_PER_SEC),
                                   (long)(b->off_ns % CLP_NSEC_PER_SEC)};
    if (!b->off_ns) {
        harness_spin(CLP_NSEC_PER_MSEC);
        return;
    }
    nanosleep(&pause, NULL);
    harness_spin(b->on_ns);
}

static void *burn(void *arg)
{
    struct harness_burner *b = arg;
    int32_t tid = harness_tid();
    if (b->clr)
        clp_threads_assigned(b->clr, tid);
    b->tid = tid;
    while (!b->stop)
        burst(b);
    b->cpu_ns = clp_clock_self_ns();
    if (b->clr)
        clp_threads_destroyed(b->clr);
    return NULL;
}

void harness_burn_start(struct harness_burner *b, uint64_t clr)
{
    b->clr = clr;
    b->stop = false;
    b->tid = 0;
    must(pthread_create(&b->thread, NULL, burn, b) == 0, "pthread_create");
    const struct timespec pause = {0, 100000};
    while (!b->tid)
        nanosleep(&pause, NULL);
}

void harness_burn_stop(struct harness_burner *b)
{
    b->stop = true;
    pthread_join(b->thread, NULL);
}
