/* Our EventPipe sessions: one a kind, so that each goes on and off by itself and leaves the levels
 * of the others, and other tools' sessions, alone.
 *
 * Starting a session makes the calling thread a managed one, on which the runtime answers some
 * questions no longer; and it may take a third of a second. So a thread that lives for just that
 * does it.  It may compile code, for which the runtime maps memory by a descriptor of the process:
 * it must not have the loop's table of descriptors, which a thread inherits from who creates it. So
 * it is created by a starter, a thread that was there before the loop got its own table, and that
 * sleeps. */
#include "sampler/inproc/events.h"

#include "sampler/inproc/event_member.h"
#include "sampler/inproc/event_sized.h"

#include "sampler/inproc/rawcall.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>

#define STACK_BYTES (1u << 20)
#define STARTER_STACK_BYTES (256u << 10) /* thread-local storage of all modules is in it */

/* Keywords and levels of Microsoft-Windows-DotNETRuntime (dotnet/runtime, ClrEtwAll.man). */
#define KEYWORD_GC 0x1ull
#define KEYWORD_CONTENTION 0x4000ull
#define KEYWORD_MONITORING 0x200000000ull
#define KEYWORD_WAIT_HANDLE 0x40000000000ull
#define KEYWORD_ALLOCATION_SAMPLING 0x80000000000ull
enum { LEVEL_ERROR = 2, LEVEL_INFORMATION = 4, LEVEL_VERBOSE = 5 };

static const uint16_t provider_name[] = u"Microsoft-Windows-DotNETRuntime";

static struct {
    struct clr_info *info;
    uint16_t major;
    uint32_t tried; /* kinds that the runtime refused: not asked for again until wanted anew */
    _Atomic uint32_t running;
    _Atomic bool busy; /* the thread is under way */
    _Atomic uint64_t refused;
    uint64_t sessions[CLP_SAMPLE_KIND_COUNT];

    pthread_t starter;
    bool has_starter;
    _Atomic bool leave;
    _Atomic uint32_t next;  /* what the thread to be created makes of the running ones */
    _Atomic uint32_t asked; /* futex: changes with each request */
} S;

static struct clr_event_provider provider_of(unsigned kind)
{
    struct clr_event_provider p = {.name = provider_name, .level = LEVEL_INFORMATION};
    switch (kind) {
    case CLP_SAMPLE_EXCEPTION:
        /* One event a throw; with its other keyword, that of exceptions, it is four from
         * INFORMATION on. And the runtime makes texts for those three, for nobody, where another
         * session has that level: it asks for the union of levels and keywords first. */
        p.keywords = KEYWORD_MONITORING;
        p.level = LEVEL_ERROR;
        break;
    case CLP_SAMPLE_ALLOC:
        p.keywords = S.major >= 10 ? KEYWORD_ALLOCATION_SAMPLING : KEYWORD_GC;
        p.level = S.major >= 10 ? LEVEL_INFORMATION : LEVEL_VERBOSE;
        break;
    case CLP_SAMPLE_LOCK:
        p.keywords = KEYWORD_CONTENTION;
        break;
    case CLP_SAMPLE_WAIT:
        p.keywords = KEYWORD_WAIT_HANDLE;
        p.level = LEVEL_VERBOSE;
        break;
    default:
        p.keywords = KEYWORD_GC;
    }
    return p;
}

static void start(unsigned kind)
{
    struct clr_event_provider p = provider_of(kind);
    if (kind == CLP_SAMPLE_LOCK)
        clp_event_waits_forget(CLP_EVENT_WAIT_LOCK);
    if (kind == CLP_SAMPLE_WAIT)
        clp_event_waits_forget(CLP_EVENT_WAIT_HANDLE);
    bool known = kind != CLP_SAMPLE_WAIT || S.major >= CLP_WIRE_WAITS_SINCE; /* else it is silent */
    if (known &&
        CLR_OK(S.info->slots->event_pipe_start_session(S.info, 1, &p, 0, &S.sessions[kind])))
        atomic_fetch_or(&S.running, 1u << kind);
    else
        atomic_fetch_add(&S.refused, 1);
}

static void stop(unsigned kind)
{
    atomic_fetch_and(&S.running, ~(1u << kind));
    (void)S.info->slots->event_pipe_stop_session(S.info, S.sessions[kind]);
    S.sessions[kind] = 0;
}

static void *change(void *arg)
{
    uint32_t wanted = (uint32_t)(uintptr_t)arg, large = 0;
    if (CLR_OK(S.info->slots->get_loh_threshold(S.info, &large)))
        clp_event_alloc_large(large);
    (void)prctl(PR_SET_NAME, "clrpulse-event");
    for (unsigned kind = 0; kind < CLP_SAMPLE_KIND_COUNT; kind++)
        if (atomic_load(&S.running) & ~wanted & 1u << kind)
            stop(kind);
    for (unsigned kind = 0; kind < CLP_SAMPLE_KIND_COUNT; kind++)
        if (wanted & ~atomic_load(&S.running) & 1u << kind)
            start(kind);
    atomic_store(&S.busy, false);
    return NULL;
}

/* The application's signals are not for this thread; faults and the runtime's own suspension are.
 */
static void signals_of_thread(sigset_t *set)
{
    static const int kept[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    sigfillset(set);
    for (size_t i = 0; i < CLP_ARRAY_LEN(kept); i++)
        sigdelset(set, kept[i]);
    sigdelset(set, SIGRTMIN);
}

/* false: no thread can be had now. */
static bool create(void *(*run)(void *), void *arg, size_t stack_bytes, bool detached,
                   pthread_t *ret)
{
    pthread_attr_t attr;
    sigset_t blocked, old;
    if (pthread_attr_init(&attr) != 0)
        return false;
    (void)pthread_attr_setstacksize(&attr, stack_bytes);
    if (detached)
        (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    signals_of_thread(&blocked);
    (void)pthread_sigmask(SIG_SETMASK, &blocked, &old);
    int r = pthread_create(ret, &attr, run, arg);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    (void)pthread_attr_destroy(&attr);
    return r == 0;
}

static void *starter_main(void *arg)
{
    (void)arg;
    (void)prctl(PR_SET_NAME, "clrpulse-start");
    for (uint32_t done = 0; !atomic_load(&S.leave);) {
        pthread_t thread;
        uint32_t asked = atomic_load(&S.asked);
        if (asked == done) {
            (void)clp_raw6(SYS_futex, (long)&S.asked, FUTEX_WAIT_PRIVATE, done, 0, 0, 0);
            continue;
        }
        done = asked;
        if (atomic_load(&S.busy) &&
            !create(change, (void *)(uintptr_t)atomic_load(&S.next), STACK_BYTES, true, &thread))
            atomic_store(&S.busy, false);
    }
    return NULL;
}

static void wake_starter(void)
{
    atomic_fetch_add(&S.asked, 1);
    (void)clp_raw4(SYS_futex, (long)&S.asked, FUTEX_WAKE_PRIVATE, 1, 0);
}

int clp_events_starter_begin(void)
{
    atomic_store(&S.leave, false);
    /* Here, not in the thread: it may begin later than the first request. */
    atomic_store(&S.asked, 0);
    S.has_starter = create(starter_main, NULL, STARTER_STACK_BYTES, false, &S.starter);
    return S.has_starter ? 0 : -EAGAIN;
}

void clp_events_starter_end(void)
{
    if (!S.has_starter)
        return;
    atomic_store(&S.leave, true);
    wake_starter();
    (void)pthread_join(S.starter, NULL);
    S.has_starter = false;
}

/* Live objects are found among sampled allocations, and told apart by collections. */
static uint32_t sessions_for(uint32_t kinds)
{
    uint32_t s = kinds & CLP_SAMPLE_KINDS_EVENT & ~(1u << CLP_SAMPLE_LIVE);
    if (kinds & 1u << CLP_SAMPLE_LIVE)
        s |= 1u << CLP_SAMPLE_ALLOC | 1u << CLP_SAMPLE_GC;
    return s;
}

void clp_events_want(struct clr_info *info, uint32_t kinds, uint16_t runtime_major)
{
    uint32_t wanted = sessions_for(kinds);
    S.tried &= wanted;
    if (atomic_load(&S.busy) || !info || !S.has_starter)
        return;
    uint32_t running = atomic_load(&S.running);
    uint32_t next = (wanted & ~S.tried) | (wanted & running);
    if (next == running)
        return;
    S.info = info;
    S.major = runtime_major;
    S.tried |= next & ~running; /* asked for once: running, or refused */
    clp_events_begin();
    if (clp_event_ring_init() < 0 || clp_event_threads_init() < 0 || clp_event_members_init() < 0)
        return;
    atomic_store(&S.next, next);
    atomic_store(&S.busy, true);
    wake_starter();
}

bool clp_events_missing(uint32_t kinds)
{
    return (sessions_for(kinds) & ~atomic_load(&S.running)) != 0;
}

bool clp_events_ready(uint32_t kinds)
{
    uint32_t missing = sessions_for(kinds) & ~atomic_load(&S.running);
    return !missing || !S.has_starter || (!atomic_load(&S.busy) && !(missing & ~S.tried));
}

bool clp_events_settled(void)
{
    return !atomic_load(&S.busy);
}

uint32_t clp_events_running(void)
{
    return atomic_load_explicit(&S.running, memory_order_relaxed);
}

uint64_t clp_events_refused(void)
{
    return atomic_load(&S.refused);
}
