#include "sampler/inproc/engine.h"

#include "sampler/inproc/alloc_totals.h"
#include "sampler/inproc/bodies.h"
#include "sampler/inproc/budget.h"
#include "sampler/inproc/capture.h"
#include "sampler/inproc/clock.h"
#include "sampler/inproc/collect.h"
#include "sampler/inproc/event_gc.h"
#include "sampler/inproc/event_live.h"
#include "sampler/inproc/event_owner.h"
#include "sampler/inproc/events.h"
#include "sampler/inproc/feed.h"
#include "sampler/inproc/hooks.h"
#include "sampler/inproc/images.h"
#include "sampler/inproc/links.h"
#include "sampler/inproc/maps.h"
#include "sampler/inproc/probe.h"
#include "sampler/inproc/runtime.h"
#include "sampler/inproc/spans.h"
#include "sampler/inproc/threads.h"
#include "sampler/inproc/wall.h"
#include "sampler/inproc/wall_shot.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROUND_NS (10 * CLP_NSEC_PER_MSEC) /* while captures come fast */
#define ROUND_MAX_NS (50 * CLP_NSEC_PER_MSEC)
#define ROUND_QUIET_NS (300 * CLP_NSEC_PER_MSEC) /* nothing has come for a while */
#define CAPTURE_BYTES (16u << 10)                /* more than one takes on average */
#define PUBLISH_NS (200 * CLP_NSEC_PER_MSEC)     /* the process clock costs 50 ns a thread */
#define HURRY_NS (2 * CLP_NSEC_PER_MSEC)         /* a hand-shake or a mark is under way */
#define SERVE_NS (15 * CLP_NSEC_PER_MSEC)        /* no more often, in rounds for other things */
/* Between two questions whether the runtime counts us; the same while it does not. */
#define COUNT_NS (250 * CLP_NSEC_PER_MSEC)
#define RECOUNT_NS (200 * CLP_NSEC_PER_MSEC)
#define DRAIN_MAX 8192u /* captures a round: more than the ring holds small ones of */
#define RING_BASE_BYTES (512u << 10)
#define RING_CPU_BYTES (64u << 10)
#define RING_MAX_BYTES (4u << 20)
#define THREADS_MAX 16384u
#define DETACH_AGAIN_NS (250 * CLP_NSEC_PER_MSEC)
#define DETACHES 20u                      /* tries: then the library stays, idle */
#define HOLD_NS (500 * CLP_NSEC_PER_MSEC) /* sessions usually start within 20 ms */
/* What may be under way while nobody hears. */
#define OPEN_KINDS (1u << CLP_SAMPLE_LOCK | 1u << CLP_SAMPLE_WAIT)
#define NO_MEMORY "no memory for the library's tables in this process"

static struct {
    struct clp_loop_runtime runtime;
    bool ready, enumerated;
    bool loads; /* at start: the runtime is not up before it says so */
    bool lost;  /* the answer to the last question */
    uint64_t count_due_ns;
    bool own_descriptors;
    bool sampling;
    bool reorder_due;   /* readers came, went or changed their minds since the last time */
    bool no_wall;       /* it was asked for, and there was no memory */
    const char *cannot; /* why sampling cannot be had in this process, or NULL */
    uint64_t pass;
    uint64_t wait_ns, longest_wait_ns, wall_wait_ns;
    uint64_t scan_due_ns, publish_due_ns, requests_due_ns, serve_due_ns;
    struct clp_settings settings; /* union of all readers' */
    uint32_t heard;               /* kinds that some reader was told, after the last new order */
    uint32_t ending;              /* of OPEN_KINDS: nobody hears them any more, and somebody will */
    uint64_t interval_ns;         /* in force: with the budget's doublings */
    struct clp_budget budget;
    bool detach_wanted;     /* as soon as no session of events is left */
    uint64_t detach_due_ns; /* the next try */
    uint32_t detaches_refused;
    uint64_t hold_until_ns; /* new readers wait so long for their sessions; 0: none waits */
    uint64_t late_from_ns;  /* up to here it is noted what events came late */
} E;

/* ---- to all readers ---- */

static bool listens(const struct clp_link *l, enum clp_sample_kind kind)
{
    return l->state == CLP_LINK_ACTIVE && (l->settings.sample_kinds & 1u << kind);
}

static void stack_to_all(void *user, const struct clp_feed_sample *s)
{
    (void)user;
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++)
        if (listens(clp_links_at(i), CLP_SAMPLE_CPU))
            (void)clp_feed_stack(&clp_links_at(i)->feed, s);
    clp_event_owner_sampled(s);
}

static void count_to_all(void *user, enum clp_counter counter)
{
    (void)user;
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++)
        if (listens(clp_links_at(i), CLP_SAMPLE_CPU))
            clp_feed_count(&clp_links_at(i)->feed, counter);
}

static void time_to_all(void *user, const struct clp_thread *t, enum clp_special special,
                        uint64_t cpu_ns, uint64_t time_ns)
{
    (void)user;
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++)
        if (listens(clp_links_at(i), CLP_SAMPLE_CPU))
            clp_feed_time(&clp_links_at(i)->feed, t, special, cpu_ns, time_ns);
}

static bool wall_stack_to_all(void *user, const struct clp_feed_sample *s)
{
    bool all = true;
    (void)user;
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++)
        if (listens(clp_links_at(i), CLP_SAMPLE_WALL))
            all &= clp_feed_stack(&clp_links_at(i)->feed, s);
    return all;
}

static void wait_to_all(void *user, const struct clp_thread *t, const struct clp_feed_waiting *w)
{
    (void)user;
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++)
        if (listens(clp_links_at(i), CLP_SAMPLE_WALL))
            clp_feed_wait(&clp_links_at(i)->feed, t, w);
}

static void event_to_all(void *user, const struct clp_feed_event *e)
{
    (void)user;
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++) {
        struct clp_link *l = clp_links_at(i);
        if (l->state == CLP_LINK_ACTIVE && l->settings.sample_kinds & 1u << e->kind)
            clp_feed_event(&l->feed, e);
    }
}

static void define_to_all(void *user, const struct clp_thread *t, const uint64_t *frames,
                          uint16_t count)
{
    (void)user;
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++) {
        struct clp_link *l = clp_links_at(i);
        if (l->state == CLP_LINK_ACTIVE && l->settings.sample_kinds & CLP_SAMPLE_KINDS_EVENT)
            clp_feed_define(&l->feed, t, frames, count);
    }
}

static const struct clp_events_sink events_sink = {.event = event_to_all, .define = define_to_all};
static const struct clp_collect_sink collect_sink = {.stack = stack_to_all, .count = count_to_all};
static const struct clp_threads_sink threads_sink = {.time = time_to_all};
static const struct clp_wall_sink wall_sink = {.stack = wall_stack_to_all, .wait = wait_to_all};

/* ---- totals ---- */

static size_t library_bytes(void)
{
    size_t n = clp_capture_bytes() + clp_threads_bytes() + clp_images_bytes() + clp_bodies_bytes() +
               clp_wall_bytes() + clp_spans_bytes() + clp_events_bytes();
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++)
        if (clp_links_at(i)->state == CLP_LINK_ACTIVE)
            n += clp_feed_bytes(&clp_links_at(i)->feed);
    return n;
}

static void event_totals(struct clp_feed_totals *totals)
{
    struct clp_event_totals t;
    uint64_t *ret = totals->events;
    clp_events_totals(&t);
#define PUT(counter, value) ret[CLP_CTR_##counter - CLP_CTR_EXCEPTIONS] = (value)
    PUT(EXCEPTIONS, t.exceptions);
    PUT(EXCEPTIONS_RETHROWN, t.exceptions_rethrown);
    PUT(ALLOC_OBJECTS, t.alloc_objects);
    PUT(ALLOC_BYTES, t.alloc_bytes);
    PUT(ALLOC_COUNTED_BYTES, t.alloc_counted);
    PUT(CONTENTIONS, t.contentions);
    PUT(CONTENTION_NS, t.contention_ns);
    PUT(GC_GEN0, t.collections[0]);
    PUT(GC_GEN1, t.collections[1]);
    PUT(GC_GEN2, t.collections[2]);
    PUT(GC_PAUSES, t.gc_pauses);
    PUT(GC_PAUSE_NS, t.gc_pause_ns);
    PUT(GC_SUSPENSION_NS, t.gc_suspension_ns);
    PUT(GC_PAUSE_GEN0_NS, t.gc_pause_of_ns[0]);
    PUT(GC_PAUSE_GEN1_NS, t.gc_pause_of_ns[1]);
    PUT(GC_PAUSE_GEN2_NS, t.gc_pause_of_ns[2]);
    PUT(WAITS, t.waits);
    PUT(WAIT_NS, t.wait_ns);
    PUT(DROP_EVENTS, t.lost);
    PUT(EVENT_SESSIONS_REFUSED, clp_events_refused());
#undef PUT
    memcpy(totals->runtime, t.heap_bytes, sizeof(t.heap_bytes));
}

static void totals(struct clp_feed_totals *ret)
{
    struct clp_wall_totals wall = clp_wall_totals();
    uint32_t pool;
    *ret = (struct clp_feed_totals){
        .process_cpu_ns = clp_clock_process_ns(),
        .library_cpu_ns = clp_clock_self_ns(),
        .capture_full = clp_capture_lost_full(),
        .capture_reentered = clp_capture_lost_reentry(),
        .timer_quota = clp_threads_quota_refused(),
        .table_full = clp_threads_table_refused() + clp_bodies_refused() + clp_images_refused() +
                      clp_spans_refused(),
        .slowdowns = E.budget.slowdowns,
        .wall_stacks = wall.stacks,
        .wall_moved = wall.moved,
        .wall_visits = wall.visits,
        .wall_cost_ns = wall.cost_ns,
        .threads = clp_threads_count(),
        .timers = clp_threads_timers(),
        .bodies = clp_bodies_known(),
        .library_bytes = library_bytes(),
        .interval_ns = E.interval_ns,
        .span_hook = clp_spans_hook_runs(),
    };
    event_totals(ret);
    uint32_t managed = clp_threads_managed(&pool);
    ret->runtime[CLP_CTR_THREADS_MANAGED - CLP_CTR_HEAP_GEN0_BYTES] = managed;
    ret->runtime[CLP_CTR_THREADS_POOL - CLP_CTR_HEAP_GEN0_BYTES] = pool;
}

static void publish(void)
{
    struct clp_feed_totals now;
    totals(&now);
    uint64_t now_ns = clp_clock_monotonic_ns();
    E.publish_due_ns = now_ns + PUBLISH_NS;
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++)
        if (clp_links_at(i)->state == CLP_LINK_ACTIVE)
            clp_feed_publish(&clp_links_at(i)->feed, &now, now_ns);
}

/* ---- accounting ---- */

/* After the samples that were taken under them. */
static void tell_ended_roots(void)
{
    uint64_t root;
    uint32_t endpoint;
    while (clp_spans_next_ended(&root, &endpoint))
        for (unsigned i = 0; i < CLP_LINKS_MAX; i++)
            if (clp_links_at(i)->state == CLP_LINK_ACTIVE)
                (void)clp_feed_root(&clp_links_at(i)->feed, root, endpoint, 0);
}

/* How many requests have ended: what the profile's cost is divided by. */
static void tell_requests(uint64_t now_ns)
{
    uint32_t endpoint, ended;
    E.requests_due_ns = now_ns + CLP_NSEC_PER_SEC;
    for (uint32_t at = 0; clp_spans_next_count(&at, &endpoint, &ended);)
        for (unsigned i = 0; i < CLP_LINKS_MAX; i++)
            if (clp_links_at(i)->state == CLP_LINK_ACTIVE)
                (void)clp_feed_root(&clp_links_at(i)->feed, 0, endpoint, ended);
}

static uint32_t drain(void)
{
    uint32_t taken = clp_collect_drain(++E.pass, DRAIN_MAX, &collect_sink);
    clp_hooks_drained(E.pass);
    clp_events_drain(E.pass, &events_sink);
    tell_ended_roots();
    return taken;
}

static void scan(void)
{
    uint64_t now = clp_clock_monotonic_ns();
    E.scan_due_ns = now + clp_threads_scan(now);
}

/* All clocks are accounted for up to the answered time. */
static uint64_t account_all(void)
{
    if (E.sampling) {
        drain();
        scan();
        drain();
        clp_threads_flush(clp_clock_monotonic_ns());
        clp_wall_flush(E.pass);
        tell_requests(clp_clock_monotonic_ns());
        clp_events_settle(clp_clock_monotonic_ns(), E.pass, true, &events_sink);
    }
    return clp_clock_monotonic_ns();
}

/* ---- sampling on and off ---- */

static size_t capture_ring_bytes(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    size_t n = RING_BASE_BYTES + RING_CPU_BYTES * (size_t)CLP_MAX(cpus, 1);
    return CLP_MIN(n, RING_MAX_BYTES);
}

static const char *prepare(void)
{
    if (clp_images_init() < 0 || clp_capture_init(capture_ring_bytes(), THREADS_MAX) < 0 ||
        clp_threads_init(THREADS_MAX, &threads_sink) < 0)
        return NO_MEMORY;
    if (clp_probe_result(CLP_PROBE_VM_READV) < 0)
        clp_images_forbid_vm_readv();
    if (clp_probe_result(CLP_PROBE_ARCH_PRCTL) == 0)
        clp_capture_allow_arch_prctl();
    if (clp_signal_install() < 0)
        return "the runtime's signal set-up is not the one that sampling can share safely";
    clp_collect_reset(E.runtime.major);
    return NULL;
}

/* Worth the signals: CPU samples, the CPU part of wall time, and what owners of locks did. */
#define KINDS_TIMED (1u << CLP_SAMPLE_CPU | 1u << CLP_SAMPLE_WALL | 1u << CLP_SAMPLE_LOCK)

static uint64_t effective_interval(void)
{
    if (!(E.settings.sample_kinds & KINDS_TIMED))
        return 0;
    uint64_t ns = E.settings.cpu_interval_ns << E.budget.doublings;
    return CLP_MIN(ns, CLP_CPU_INTERVAL_MAX_NS);
}

/* So long the ring has room for a burst on all CPUs that nobody expects. */
static uint64_t longest_wait(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t ns = capture_ring_bytes() / CAPTURE_BYTES * E.interval_ns / (uint64_t)CLP_MAX(cpus, 1);
    if (!E.interval_ns)
        return ROUND_QUIET_NS;
    return CLP_MAX(CLP_MIN(ns, ROUND_QUIET_NS), ROUND_MAX_NS);
}

static void apply_interval(void)
{
    E.interval_ns = effective_interval();
    E.longest_wait_ns = longest_wait();
    clp_threads_start(E.interval_ns, E.settings.flags & CLP_SETTINGS_NATIVE_STACKS);
}

static void apply_wall(void)
{
    E.no_wall = false;
    if (!(E.settings.sample_kinds & 1u << CLP_SAMPLE_WALL))
        clp_wall_stop();
    else if (clp_wall_start(clp_clock_monotonic_ns(), E.settings.wall_budget_ppm, E.own_descriptors,
                            &wall_sink) < 0)
        E.no_wall = true;
}

/* After the tables of threads stand: what is told to them before is lost. */
static void enumerate_once(void)
{
    if (!E.ready || E.enumerated)
        return;
    E.enumerated = true;
    if (E.runtime.enumerate)
        E.runtime.enumerate();
}

static void start_sampling(void)
{
    E.cannot = prepare();
    if (E.cannot)
        return;
    enumerate_once();
    clp_budget_begin(&E.budget, clp_clock_monotonic_ns(), clp_clock_self_ns(),
                     clp_clock_process_ns());
    clp_capture_enable(true);
    apply_interval();
    E.sampling = true;
    clp_event_owner_start(E.own_descriptors);
    uint32_t at = 0, endpoint, ended;
    while (clp_spans_next_count(&at, &endpoint, &ended))
        continue; /* of before */
    clp_spans_live(true);
}

/* The signal stays shared while the library is attached: without timers it costs nothing. */
static void stop_sampling(void)
{
    clp_spans_live(false);
    clp_wall_stop();
    clp_wall_shot_close(); /* what looks at owners of locks left open */
    clp_alloc_totals_want(false, 0);
    clp_threads_stop();
    clp_capture_enable(false);
    clp_collect_discard();
    E.sampling = false;
    E.interval_ns = 0;
}

/* ---- readers come, go, and change their minds ---- */

static struct clp_settings union_of_settings(void)
{
    struct clp_settings all = {.cpu_interval_ns = CLP_CPU_INTERVAL_MAX_NS};
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++) {
        const struct clp_link *l = clp_links_at(i);
        if (l->state < CLP_LINK_WELCOMED || l->settings.sample_kinds == 0)
            continue;
        all.sample_kinds |= l->settings.sample_kinds;
        all.flags |= l->settings.flags;
        all.wall_budget_ppm = CLP_MAX(all.wall_budget_ppm, l->settings.wall_budget_ppm);
        all.cpu_interval_ns = CLP_MIN(all.cpu_interval_ns, l->settings.cpu_interval_ns);
    }
    return all;
}

/* What a program does before its runtime is up is told too: its reader knows best when that was. */
static void open_feed(struct clp_link *l, uint64_t from_ns)
{
    struct clp_feed_totals now;
    totals(&now);
    int r = clp_feed_open(&l->feed, l->mapping, l->mapped_bytes, &now, E.loads ? 0 : from_ns);
    if (r < 0)
        clp_link_close(l, r == -ENOMEM ? "no memory for another reader's tables in this process"
                                       : "the shared memory's header is not of this version");
    else
        l->state = CLP_LINK_ACTIVE;
}

/* An address inside the runtime's code; 0: it is not known yet. */
static uint64_t runtime_address(void)
{
    const struct clr_info *info = clp_runtime_info();
    return info ? (uint64_t)(uintptr_t)info->slots->set_event_mask2 : 0;
}

/* Bytes are counted from before their events come to after; only while the runtime tells of ends
 * of threads. */
static void tend_counting(uint32_t kinds)
{
    bool on = kinds & (1u << CLP_SAMPLE_ALLOC) && E.enumerated;
    clp_alloc_totals_want(on, runtime_address());
}

/* Each event's walk goes through this library, the runtime, its managed part and libc. The first
 * one that meets them builds their tables: that takes some tens of milliseconds, and is not for
 * when events wait in their ring. */
static void prepare_walks(void)
{
    const uint64_t native[] = {runtime_address(), (uint64_t)(uintptr_t)prepare_walks,
                               (uint64_t)(uintptr_t)pthread_create};
    struct clp_code code;
    if (!E.sampling || !native[0] || !(E.settings.sample_kinds & CLP_SAMPLE_KINDS_EVENT))
        return;
    for (size_t i = 0; i < CLP_ARRAY_LEN(native); i++)
        clp_images_find(native[i], E.pass, &code);
    clp_bodies_prepare();
}

static uint32_t heard_kinds(void)
{
    uint32_t heard = 0;
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++)
        if (clp_links_at(i)->state == CLP_LINK_ACTIVE)
            heard |= clp_links_at(i)->settings.sample_kinds;
    return heard;
}

/* Sessions of events come and go on a thread of their own. */
static void tend_sessions(void)
{
    E.ending &= clp_events_running();
    uint32_t kinds = E.sampling ? E.settings.sample_kinds & ~E.ending : 0;
    tend_counting(kinds);
    clp_event_live_want(kinds & 1u << CLP_SAMPLE_LIVE);
    if (!(clp_events_running() & 1u << CLP_SAMPLE_LOCK))
        clp_event_owner_stop();
    if (!(clp_events_running() & 1u << CLP_SAMPLE_GC))
        clp_event_gc_forget();
    if (!E.sampling && clp_events_running() == 0)
        clp_events_discard();
    clp_events_want(clp_runtime_info(), kinds & CLP_SAMPLE_KINDS_EVENT, E.runtime.major);
}

/* While the runtime is asked no callback is heeded: after a refusal what is known may be stale. */
static bool detach(void)
{
    if (E.runtime.request_detach())
        return true;
    E.enumerated = false;
    E.runtime.lost_sight();
    return false;
}

/* A detach with a session open or a handle left would leave it to nobody. */
static void detach_when_settled(void)
{
    if (!E.detach_wanted || !clp_events_settled())
        return;
    if (clp_events_running() != 0) {
        tend_sessions();
        return;
    }
    tend_sessions();
    uint64_t now_ns = clp_clock_monotonic_ns();
    if (!clp_event_live_settled() || now_ns < E.detach_due_ns)
        return;
    E.detach_due_ns = now_ns + DETACH_AGAIN_NS;
    if (detach() || ++E.detaches_refused >= DETACHES)
        E.detach_wanted = false;
}

static uint32_t event_kinds(const struct clp_settings *s)
{
    return s->sample_kinds & CLP_SAMPLE_KINDS_EVENT;
}

/* A reader's first window is whole when its events come from its beginning on. But what is there
 * from the first instruction on must not wait for a runtime that is still starting. */
static bool holds_new_readers(uint64_t now_ns)
{
    if (E.loads || !E.sampling || (!E.ending && clp_events_ready(event_kinds(&E.settings))))
        return false;
    if (!E.hold_until_ns)
        E.hold_until_ns = now_ns + HOLD_NS;
    return now_ns < E.hold_until_ns;
}

static void note_late_events(uint64_t now_ns)
{
    uint64_t ns = E.late_from_ns && now_ns > E.late_from_ns ? now_ns - E.late_from_ns : 0;
    E.late_from_ns = now_ns;
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++) {
        struct clp_link *l = clp_links_at(i);
        if (l->state == CLP_LINK_ACTIVE && clp_events_missing(event_kinds(&l->settings)))
            l->feed.counters[CLP_CTR_EVENTS_LATE_NS] += ns;
    }
}

/* Everything up to now belongs to those who listened up to now; then the new order holds. */
static void reorder(uint64_t now_ns)
{
    uint64_t from_ns = account_all();
    /* The last reader of a kind has left and the next one comes in the same round: a session that
     * went on would show it the rest of waits that began before it came. */
    E.ending |= E.heard & ~heard_kinds() & OPEN_KINDS;
    E.reorder_due = false;
    E.settings = union_of_settings();
    if (E.settings.sample_kinds && !E.sampling) {
        start_sampling();
        from_ns = account_all(); /* what starting took belongs to nobody */
    } else if (E.settings.sample_kinds) {
        apply_interval();
    } else if (E.sampling) {
        stop_sampling();
    } else {
        clp_spans_live(false); /* whose reader left before the program began */
    }
    if (E.sampling)
        apply_wall();
    prepare_walks();
    tend_sessions();
    bool hold = holds_new_readers(now_ns);
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++) {
        struct clp_link *l = clp_links_at(i);
        bool wall = l->settings.sample_kinds & 1u << CLP_SAMPLE_WALL;
        if (l->state >= CLP_LINK_WELCOMED && l->settings.sample_kinds && !E.sampling)
            clp_link_close(l, E.cannot);
        else if (l->state >= CLP_LINK_WELCOMED && wall && E.no_wall)
            clp_link_close(l, NO_MEMORY);
        else if (l->state == CLP_LINK_WELCOMED && !hold)
            open_feed(l, from_ns);
    }
    if (!hold)
        E.hold_until_ns = 0;
    E.heard = heard_kinds();
    publish(); /* the first heartbeat says that the feed is open */
}

/* While a new order has to wait: what nobody listens to any more ends, or whoever comes next would
 * be shown the rest of waits that began before it came. */
static void end_unheard(void)
{
    E.settings.sample_kinds &= heard_kinds();
}

/* ---- flushes ---- */

static void write_marks(void)
{
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++) {
        struct clp_link *l = clp_links_at(i);
        if (l->state == CLP_LINK_ACTIVE && l->mark_due &&
            clp_feed_mark(&l->feed, l->mark_id, l->mark_time_ns))
            l->mark_due = false;
    }
}

static void event_to_one(void *user, const struct clp_feed_event *e)
{
    struct clp_link *l = user;
    clp_feed_event(&l->feed, e);
}

/* What lives is a state: it belongs to the window that ends, of the reader whose window it is. */
static void tell_live(struct clp_link *l, uint64_t now_ns)
{
    const struct clp_events_sink sink = {.user = l, .event = event_to_one};
    if (listens(l, CLP_SAMPLE_LIVE))
        clp_event_live_write(now_ns, &sink);
}

static void answer_flushes(void)
{
    bool asked = false;
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++)
        asked |= clp_links_at(i)->state == CLP_LINK_ACTIVE && clp_links_at(i)->flush_id;
    if (!asked)
        return;
    uint64_t now = account_all();
    publish(); /* the totals that go with the marks */
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++) {
        struct clp_link *l = clp_links_at(i);
        if (l->state != CLP_LINK_ACTIVE || !l->flush_id)
            continue;
        tell_live(l, now);
        clp_feed_tell_gone(&l->feed);
        l->mark_due = true;
        l->mark_id = l->flush_id;
        l->mark_time_ns = now;
        l->flush_id = 0;
    }
}

/* ---- rounds ---- */

void clp_engine_begin(const struct clp_loop_runtime *runtime, bool own_descriptors)
{
    struct clp_links_self self = {runtime->major, runtime->minor, runtime->patch, own_descriptors};
    uint64_t slowdowns = E.budget.slowdowns, pass = E.pass;
    memset(&E, 0, sizeof(E));
    E.runtime = *runtime;
    E.own_descriptors = own_descriptors;
    E.loads = !runtime->attaching;
    E.budget.slowdowns = slowdowns;
    E.pass = pass;
    clp_maps_keep_open(own_descriptors);
    clp_links_init(&self);
}

void clp_engine_runtime_ready(void)
{
    E.ready = true;
}

void clp_engine_announce(const struct clp_attach_data *attach)
{
    (void)clp_links_connect(attach, clp_clock_monotonic_ns());
}

bool clp_engine_greets(void)
{
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++) {
        enum clp_link_state state = clp_links_at(i)->state;
        if (state == CLP_LINK_CONNECTING || state == CLP_LINK_GREETED)
            return true;
    }
    return false;
}

static bool in_a_hurry(void)
{
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++) {
        const struct clp_link *l = clp_links_at(i);
        if ((l->state != CLP_LINK_FREE && l->state != CLP_LINK_ACTIVE) || l->mark_due)
            return true;
    }
    return false;
}

/* Each waking takes a CPU from the application; the ring must not fill meanwhile. */
static uint64_t next_wait(uint32_t taken, size_t waited_bytes)
{
    if (!taken)
        return CLP_MIN(2 * E.wait_ns, E.longest_wait_ns);
    bool steady = E.wait_ns <= ROUND_MAX_NS && waited_bytes < clp_capture_bytes() / 8;
    return steady ? CLP_MIN(2 * E.wait_ns, ROUND_MAX_NS) : ROUND_NS;
}

static void sample_round(uint64_t now_ns)
{
    enumerate_once();
    size_t waited_bytes = clp_capture_waiting();
    E.wait_ns = next_wait(drain(), waited_bytes);
    if (now_ns >= E.requests_due_ns)
        tell_requests(now_ns);
    if (now_ns >= E.scan_due_ns)
        scan();
    uint64_t wall_ns = clp_wall_round(now_ns, E.pass), owner_ns = clp_event_owner_round(E.pass);
    E.wall_wait_ns = CLP_MIN(wall_ns, owner_ns);
    clp_event_live_round(now_ns);
    clp_events_follow(now_ns);
    if (clp_events_due(now_ns)) {
        clp_events_settle(now_ns, E.pass, false, &events_sink);
        /* What waited for members' memory has asked to be woken for, and asks once. */
        clp_events_drain(E.pass, &events_sink);
    }
    if (clp_budget_due(&E.budget, now_ns) &&
        clp_budget_check(&E.budget, now_ns, clp_clock_self_ns(), clp_clock_process_ns()))
        apply_interval();
}

static void ask_recount(void)
{
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++)
        if (clp_links_at(i)->state >= CLP_LINK_WELCOMED)
            clp_link_ask_recount(clp_links_at(i));
}

/* Before the runtime is up nothing is asked of it. Time counts on, whatever it says: only names and
 * new threads depend on its calls. */
static void heed_count(uint64_t now_ns)
{
    if (!E.runtime.has_lost_count || (E.loads && !E.ready) || now_ns < E.count_due_ns)
        return;
    bool lost = E.runtime.has_lost_count();
    E.count_due_ns = now_ns + (lost ? RECOUNT_NS : COUNT_NS);
    if (lost) {
        E.ready = E.enumerated = false;
        E.runtime.lost_sight();
        ask_recount();
    } else if (E.lost) {
        E.ready = true; /* whoever put it right */
    }
    E.lost = lost;
}

static void serve(uint64_t now_ns, struct clp_links_news *news)
{
    if (now_ns < E.serve_due_ns && !in_a_hurry())
        return;
    E.serve_due_ns = now_ns + SERVE_NS;
    clp_links_serve(now_ns, news);
}

uint64_t clp_engine_round(void)
{
    struct clp_links_news news = {0};
    uint64_t now = clp_clock_monotonic_ns();
    E.wait_ns = CLP_MAX(E.wait_ns, ROUND_NS);
    serve(now, &news);
    bool waiting = false;
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++)
        waiting |= clp_links_at(i)->state == CLP_LINK_WELCOMED;
    if (waiting || E.sampling)
        heed_count(now);
    /* Spans of a program that starts are kept from its first instruction on. */
    if (E.loads && !E.ready)
        clp_spans_live(waiting);
    waiting &= !E.hold_until_ns || !holds_new_readers(now);
    /* What readers want waits for a runtime that can be asked, but not the end of it all. */
    E.reorder_due |= news.settings_changed;
    if ((E.ready || !clp_links_any()) && (E.reorder_due || waiting))
        reorder(now);
    else if (E.reorder_due)
        end_unheard();
    note_late_events(now);
    if (E.sampling)
        sample_round(now);
    else
        E.wait_ns = E.wall_wait_ns = ROUND_MAX_NS;
    answer_flushes();
    write_marks();
    if (now >= E.publish_due_ns)
        publish();
    if (news.detach_asked && E.runtime.request_detach) {
        E.detach_wanted = true;
        E.detaches_refused = 0;
        E.detach_due_ns = now;
    }
    if (clp_links_any() && !news.detach_asked)
        E.detach_wanted = false; /* somebody came meanwhile */
    detach_when_settled();
    tend_sessions();
    if (!clp_links_any())
        return E.detach_wanted || !clp_events_settled() || !clp_event_live_settled()
                   ? ROUND_NS
                   : CLP_ENGINE_IDLE;
    uint64_t wait_ns = in_a_hurry() ? HURRY_NS : E.wait_ns;
    return CLP_MIN(wait_ns, E.wall_wait_ns);
}

/* ---- the end ---- */

static bool marks_are_due(void)
{
    bool due = false;
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++)
        due |= clp_links_at(i)->mark_due;
    return due;
}

void clp_engine_last_words(uint64_t deadline_ns)
{
    const struct timespec pause = {.tv_nsec = HURRY_NS};
    uint64_t now = account_all();
    publish();
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++) {
        struct clp_link *l = clp_links_at(i);
        if (l->state == CLP_LINK_ACTIVE) {
            tell_live(l, now);
            l->mark_due = true;
            l->mark_id = 0;
            l->mark_time_ns = now;
        }
    }
    for (write_marks(); marks_are_due() && clp_clock_monotonic_ns() < deadline_ns; write_marks())
        (void)nanosleep(&pause, NULL);
}

void clp_engine_end(void)
{
    if (E.sampling)
        stop_sampling();
    clp_signal_uninstall();
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++)
        if (clp_links_at(i)->state != CLP_LINK_FREE)
            clp_link_close(clp_links_at(i), NULL);
    clp_maps_keep_open(false);
}
