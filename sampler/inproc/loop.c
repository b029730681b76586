#include "sampler/inproc/loop.h"

#include "base/core/lock.h"
#include "sampler/inproc/clock.h"
#include "sampler/inproc/engine.h"
#include "sampler/inproc/events.h"
#include "sampler/inproc/probe.h"
#include "sampler/inproc/rawcall.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* Address space; what is not used is never touched. The runtime is called on this thread. */
#define STACK_BYTES (512u << 10)
#define ANNOUNCED_MAX 4
#define CLOSE_RANGE_UNSHARE_FLAG 2

enum life { STOPPED, STARTING, RUNNING, STOPPING };

static struct {
    _Atomic int life;
    pthread_t thread;
    struct clp_loop_runtime runtime;

    struct clp_lock lock; /* leaf: the announced readers */
    struct clp_attach_data announced[ANNOUNCED_MAX];
    unsigned announced_count;

    _Atomic bool ready, stop;
    _Atomic uint64_t shutdown_ns; /* deadline of the last words; 0 = none */
    _Atomic uint32_t wake;        /* futex: changes when there is something to look at */
    _Atomic uint32_t ended;       /* futex: 1 when the thread has finished */
    _Atomic uint32_t met;         /* futex: 1 when no hand-shake is under way */
} L;

/* ---- waiting ---- */

/* The library keeps no descriptor to be woken by: nothing shows in the application's table. */
static void futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t ns)
{
    struct timespec ts = {(time_t)(ns / CLP_NSEC_PER_SEC), (long)(ns % CLP_NSEC_PER_SEC)};
    (void)clp_raw6(SYS_futex, (long)word, FUTEX_WAIT_PRIVATE, seen,
                   (long)(ns == CLP_ENGINE_IDLE ? NULL : &ts), 0, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    (void)clp_raw4(SYS_futex, (long)word, FUTEX_WAKE_PRIVATE, INT_MAX, 0);
}

void clp_loop_wake(void)
{
    atomic_fetch_add(&L.wake, 1);
    futex_wake_all(&L.wake);
}

/* ---- the thread ---- */

/* A descriptor table of our own: what we open does not show in the application's, and what it
 * closes is not ours. 0, 1 and 2 lead nowhere, so that a stray message of the runtime cannot reach
 * a reader. */
static bool own_descriptors(void)
{
    if (clp_probe_result(CLP_PROBE_UNSHARE) < 0 ||
        clp_raw3(SYS_close_range, 0, ~0u, CLOSE_RANGE_UNSHARE_FLAG) < 0)
        return false;
    for (int i = 0; i < 3; i++)
        if (open("/dev/null", O_RDWR | O_CLOEXEC) < 0)
            (void)eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return true;
}

static bool take_announced(struct clp_attach_data *ret)
{
    clp_lock(&L.lock);
    bool any = L.announced_count > 0;
    if (any) {
        *ret = L.announced[0];
        L.announced_count--;
        for (unsigned i = 0; i < L.announced_count; i++)
            L.announced[i] = L.announced[i + 1];
    }
    clp_unlock(&L.lock);
    return any;
}

static void note_met(void)
{
    clp_lock(&L.lock);
    bool all = L.announced_count == 0 && !clp_engine_greets();
    bool first = all && !atomic_exchange(&L.met, 1);
    clp_unlock(&L.lock);
    if (first)
        futex_wake_all(&L.met);
}

static void serve(void)
{
    while (!atomic_load(&L.stop)) {
        uint32_t seen = atomic_load(&L.wake);
        struct clp_attach_data attach;
        while (take_announced(&attach))
            clp_engine_announce(&attach);
        if (atomic_exchange(&L.ready, false))
            clp_engine_runtime_ready();
        uint64_t deadline = atomic_load(&L.shutdown_ns);
        if (deadline) {
            clp_engine_last_words(deadline);
            return;
        }
        uint64_t sleep_ns = clp_engine_round();
        note_met();
        futex_wait(&L.wake, seen, sleep_ns);
    }
}

static void *thread_main(void *arg)
{
    (void)arg;
    (void)prctl(PR_SET_NAME, "clrpulse");
    clp_probe_run();
    clp_engine_begin(&L.runtime, own_descriptors());
    serve();
    clp_engine_end();
    atomic_store(&L.ended, 1);
    futex_wake_all(&L.ended);
    return NULL;
}

/* The thread inherits the mask: no signal of the application is ever handled on it. */
static int create_thread(void)
{
    sigset_t all, old;
    pthread_attr_t attr;
    int r = pthread_attr_init(&attr);
    if (r != 0)
        return -r;
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES); /* else libc's own size */
    sigfillset(&all);
    r = pthread_sigmask(SIG_SETMASK, &all, &old);
    if (r == 0) {
        r = pthread_create(&L.thread, &attr, thread_main, NULL);
        (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    (void)pthread_attr_destroy(&attr);
    return -r;
}

/* ---- for the CLR side ---- */

int clp_loop_start(const struct clp_loop_runtime *runtime)
{
    int was = STOPPED;
    if (!atomic_compare_exchange_strong(&L.life, &was, STARTING))
        return was == STOPPING ? -EBUSY : 0;
    L.runtime = *runtime;
    atomic_store(&L.stop, false);
    atomic_store(&L.ready, false);
    atomic_store(&L.shutdown_ns, 0);
    atomic_store(&L.ended, 0);
    atomic_store(&L.met, 0);
    (void)!clp_events_starter_begin(); /* without it there are no events, but all else */
    int r = create_thread();
    if (r < 0)
        clp_events_starter_end();
    atomic_store(&L.life, r == 0 ? RUNNING : STOPPED);
    return r;
}

int clp_loop_add_reader(const struct clp_attach_data *data)
{
    int r = -EBUSY;
    clp_lock(&L.lock);
    if (L.announced_count < ANNOUNCED_MAX) {
        L.announced[L.announced_count++] = *data;
        atomic_store(&L.met, 0);
        r = 0;
    }
    clp_unlock(&L.lock);
    clp_loop_wake();
    return r;
}

void clp_loop_runtime_ready(void)
{
    atomic_store(&L.ready, true);
    clp_loop_wake();
}

static void wait_until_set(_Atomic uint32_t *word, uint64_t deadline_ns)
{
    uint64_t now = clp_clock_monotonic_ns();
    for (; !atomic_load(word) && now < deadline_ns; now = clp_clock_monotonic_ns())
        futex_wait(word, 0, deadline_ns - now);
}

void clp_loop_wait_for_readers(uint64_t ns)
{
    wait_until_set(&L.met, clp_clock_monotonic_ns() + ns);
}

void clp_loop_shutdown(uint64_t budget_ns)
{
    if (atomic_load(&L.life) != RUNNING)
        return;
    uint64_t deadline = clp_clock_monotonic_ns() + CLP_MAX(budget_ns, 1);
    atomic_store(&L.shutdown_ns, deadline);
    clp_loop_wake();
    wait_until_set(&L.ended, deadline);
}

void clp_loop_stop(void)
{
    int was = RUNNING;
    if (!atomic_compare_exchange_strong(&L.life, &was, STOPPING))
        return;
    atomic_store(&L.stop, true);
    clp_loop_wake();
    (void)pthread_join(L.thread, NULL);
    clp_events_starter_end();
    clp_lock(&L.lock);
    L.announced_count = 0;
    clp_unlock(&L.lock);
    atomic_store(&L.life, STOPPED);
}
