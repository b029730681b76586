/* The loop's side of threads.h: who is there, their clocks, and who holds a timer. */
#include "sampler/inproc/threads.h"

#include "sampler/inproc/clock.h"
#include "sampler/inproc/probe.h"
#include "sampler/inproc/quota.h"
#include "sampler/inproc/rawcall.h"
#include "sampler/inproc/tasks.h"
#include "sampler/inproc/thread_names.h"
#include "sampler/inproc/thread_table.h"
#include "sampler/inproc/timers.h"

#include <errno.h>
#include <string.h>

#define SCAN_MIN_NS (100 * CLP_NSEC_PER_MSEC)
#define SCAN_QUIET_NS CLP_NSEC_PER_SEC /* while nobody runs */
#define SCAN_MAX_NS (5 * CLP_NSEC_PER_SEC)
#define SCAN_COST_FACTOR 1000 /* a pass may cost 0.1 % of the time until the next one */
#define LIST_EVERY_NS CLP_NSEC_PER_SEC
#define QUOTA_EVERY_NS CLP_NSEC_PER_SEC
#define EMIT_EVERY_NS CLP_NSEC_PER_SEC
#define NAME_SETTLES_NS (10 * CLP_NSEC_PER_SEC) /* threads name themselves after they started */
#define NAME_AGAIN_NS (50 * CLP_NSEC_PER_MSEC)  /* longer than a collection moves things */
#define ACTIVE_NS CLP_NSEC_PER_SEC
#define IDLE_LIMIT_NS (10 * CLP_NSEC_PER_SEC)
#define IDLE_LIMIT_MAX_NS (300 * CLP_NSEC_PER_SEC)
#define LOOKS_A_PASS 8u  /* 20 us each */
#define NAMES_A_PASS 16u /* 7 us each; more come and go than anybody wants to read about */

static struct {
    int32_t own_tid;
    uint32_t cpus;
    uint64_t pass;
    int64_t stamp;
    uint64_t listed_at_ns, quota_at_ns;
    uint64_t refused; /* times a thread was left without a timer */
    bool any_moved;   /* a clock, in this pass */
    uint64_t pause_ns;
    uint32_t looks_left; /* at signal masks, in this pass */
    uint32_t names_left; /* to be read from /proc, in this pass */
    uint32_t managed, pool;
} state;

/* Native threads that the runtime makes for itself, by the kernel's 15 bytes of their names
 * (dotnet/runtime 8 - 10). A list, not the prefix ".NET ": threads of foreign libraries inherit the
 * name of the managed thread that started them. */
static const char *const runtime_threads[] = {
    ".NET SynchManag", ".NET EventPipe", ".NET DebugPipe", ".NET Debugger",   ".NET Finalizer",
    ".NET Tiered Com", ".NET BGC",       ".NET Server GC", ".NET SigHandler",
};

static bool is_live(const struct clp_record *r)
{
    return atomic_load(&r->state) == CLP_RECORD_LIVE;
}

static uint32_t usable_cpus(void)
{
    uint64_t mask[16] = {0};
    uint32_t n = 0;
    (void)clp_raw3(SYS_sched_getaffinity, 0, sizeof(mask), (long)mask);
    for (size_t i = 0; i < CLP_ARRAY_LEN(mask); i++)
        n += (uint32_t)__builtin_popcountll(mask[i]);
    return CLP_MAX(n, 1u);
}

int clp_threads_init(uint32_t max_threads, const struct clp_threads_sink *sink)
{
    if (clp_thread_table.records)
        return 0;
    if (!max_threads || !sink || !sink->time || !clp_capture_slot(max_threads - 1))
        return -EINVAL;
    clp_account_init(sink, (int32_t)clp_raw3(SYS_getpid, 0, 0, 0));
    return clp_table_init(max_threads);
}

/* ---- who is there ---- */

static bool starts_with(const char *s, const char *prefix)
{
    return !strncmp(s, prefix, strlen(prefix));
}

static uint32_t kind_of(const struct clp_record *r, const char *comm)
{
    if (r->pub.tid == state.own_tid)
        return CLP_THREAD_OURS;
    for (size_t i = 0; i < CLP_ARRAY_LEN(runtime_threads); i++)
        if (!strcmp(comm, runtime_threads[i]))
            return CLP_THREAD_RUNTIME;
    return CLP_THREAD_NATIVE;
}

/* io_uring workers block every signal, and so may threads of libraries: a timer's signal would stay
 * pending for ever and hold its slot of the quota. */
static bool never_signalled(const struct clp_record *r, const char *comm)
{
    uint64_t blocked;
    if (starts_with(comm, "iou-"))
        return true;
    if (!clp_thread_table.native_stacks || r->pub.kind != CLP_THREAD_NATIVE)
        return false;
    return clp_tasks_blocked(r->pub.tid, &blocked) < 0 || blocked >> (SIGRTMIN - 1) & 1;
}

static uint64_t hash_of(const char *text)
{
    uint64_t h = 0xcbf29ce484222325ull;
    for (; *text; text++)
        h = (h ^ (uint8_t)*text) * 0x100000001b3ull;
    return h | 1;
}

/* A managed thread's name from before our time: believed when it was found twice. */
static void look_for_whole_name(struct clp_record *r)
{
    char comm[CLP_TASK_COMM_BYTES + 1], name[CLP_THREAD_NAME_BYTES] = "";
    uint64_t now = clp_clock_monotonic_ns();
    int64_t len = clp_tasks_comm_raw(r->pub.tid, comm, sizeof(comm));
    if (len < 0 ||
        clp_thread_names_find(r->pub.clr_thread, comm, (size_t)len, name, sizeof(name)) < 0)
        return;
    if (r->name_hash != hash_of(name)) {
        r->name_hash = hash_of(name);
        r->name_at_ns = now;
    }
    if (now - r->name_at_ns < NAME_AGAIN_NS) {
        r->fresh = true;
        return;
    }
    memcpy(r->pub.name, name, sizeof(name));
    r->managed_name = true;
    r->pub.name_version++;
}

static void look_at_name(struct clp_record *r)
{
    char comm[CLP_TASK_COMM_BYTES];
    r->fresh = false;
    if (r->pub.clr_thread && !r->managed_name)
        look_for_whole_name(r);
    if (clp_tasks_comm(r->pub.tid, comm) < 0)
        return;
    if (r->pub.kind != CLP_THREAD_MANAGED) {
        r->pub.kind = kind_of(r, comm);
        r->unsignalled = never_signalled(r, comm);
    }
    if (r->managed_name || !strcmp(r->pub.name, comm))
        return;
    memset(r->pub.name, 0, sizeof(r->pub.name));
    memcpy(r->pub.name, comm, sizeof(comm));
    r->pub.name_version++;
}

static void see_task(void *user, int32_t tid)
{
    (void)user;
    clp_lock(&clp_thread_table.lock);
    struct clp_record *r = clp_table_by_tid(tid);
    if (!r && (r = clp_table_add(tid, 0, CLP_THREAD_NATIVE)))
        clp_table_publish(r);
    clp_unlock(&clp_thread_table.lock);
    if (!r)
        return;
    if (!r->managed_name && clp_clock_monotonic_ns() - r->made_at_ns < NAME_SETTLES_NS)
        r->fresh = true;
}

static void end_record(struct clp_record *r)
{
    clp_record_take_timer(r, 0);
    clp_lock(&clp_thread_table.lock);
    clp_table_unlink(r);
    clp_unlock(&clp_thread_table.lock);
    r->pub.seen_ns = CLP_MAX(r->pub.seen_ns, r->final_ns);
    r->pub.alive = false;
    r->ended_at_pass = state.pass;
    atomic_store(&r->state, CLP_RECORD_ENDED);
}

/* Finds new threads. Says nothing about ended ones: the kernel's walk may stop early when the
 * thread at its cursor ends, so one that is not listed may well be alive. Their clocks tell. */
static void list_tasks(uint64_t now_ns)
{
    state.stamp = clp_tasks_stamp();
    state.listed_at_ns = now_ns;
    (void)clp_tasks_list(see_task, NULL);
}

static void list_if_due(uint64_t now_ns)
{
    if (now_ns - state.listed_at_ns >= LIST_EVERY_NS || clp_tasks_stamp() != state.stamp)
        list_tasks(now_ns);
}

/* Ended threads stay for one pass: their last captures may still be in the ring. */
static void retire_ended(uint64_t now_ns)
{
    for (uint32_t i = 0; i < clp_table_count(); i++) {
        struct clp_record *r = clp_table_at(i);
        if (!r || is_live(r) || r->ended_at_pass == state.pass)
            continue;
        clp_account_residual(r, now_ns);
        if (clp_thread_table.ended)
            clp_thread_table.ended(r, now_ns);
        clp_lock(&clp_thread_table.lock);
        clp_table_free(r);
        clp_unlock(&clp_thread_table.lock);
    }
}

/* ---- clocks and timers ---- */

/* A signal may also be lost (disabled for a moment, re-entered): then the timer is armed again.
 * While the signal is blocked this changes nothing. */
static void look_at_overdue(struct clp_record *r, uint64_t now_ns)
{
    uint64_t mask;
    if (!r->seen_blocked && state.looks_left) {
        state.looks_left--;
        r->seen_blocked = clp_tasks_blocked(r->pub.tid, &mask) == 0 && mask >> (SIGRTMIN - 1) & 1;
    }
    if (now_ns - r->rearmed_ns > ACTIVE_NS) {
        r->rearmed_ns = now_ns;
        (void)clp_timer_arm(atomic_load(&clp_table_slot(r)->timer_id), 1);
    }
}

/* A thread that used CPU between two passes without a timer had a burst that nobody saw: sampled at
 * once, and its timer is kept longer after each such burst. */
static void tend_active(struct clp_record *r, uint64_t now_ns)
{
    uint64_t clock = r->pub.seen_ns;
    bool waited = r->waits_for_timer;
    if (clp_record_has_timer(r)) {
        if (clp_account_overdue(r, clock, 0))
            look_at_overdue(r, now_ns);
        return;
    }
    if (r->timer_lost_ns && !waited)
        r->idle_limit_ns = CLP_MIN(CLP_MAX(r->idle_limit_ns, IDLE_LIMIT_NS) * 2, IDLE_LIMIT_MAX_NS);
    if (!clp_record_give_timer(r, clock, now_ns, 1) && !waited)
        state.refused++;
}

static void tend_idle(struct clp_record *r, uint64_t now_ns)
{
    uint64_t idle = now_ns > r->pub.moved_at_ns ? now_ns - r->pub.moved_at_ns : 0;
    uint64_t limit = clp_timers_plentiful() ? CLP_MAX(r->idle_limit_ns, IDLE_LIMIT_NS) : ACTIVE_NS;
    if (idle > ACTIVE_NS)
        r->waits_for_timer = false;
    if (idle > limit)
        clp_record_take_timer(r, now_ns);
}

static void tend_timer(struct clp_record *r, bool moved, uint64_t now_ns)
{
    if (!clp_record_wants_stacks(r)) {
        clp_record_take_timer(r, now_ns);
        if (now_ns - r->counted_at_ns >= EMIT_EVERY_NS)
            clp_account_residual(r, now_ns);
    } else if (moved) {
        tend_active(r, now_ns);
    } else {
        tend_idle(r, now_ns);
    }
}

/* False when the thread has ended. */
static bool read_clock(struct clp_record *r, uint64_t now_ns, bool *ret_moved)
{
    uint64_t clock;
    *ret_moved = false;
    if (r->replaced || clp_clock_thread_ns(r->pub.tid, &clock) < 0 || clock < r->pub.seen_ns) {
        end_record(r);
        return false;
    }
    *ret_moved = clock > r->pub.seen_ns;
    state.any_moved |= *ret_moved && r->pub.kind != CLP_THREAD_OURS;
    if (*ret_moved)
        r->pub.moved_at_ns = now_ns;
    r->pub.seen_ns = clock;
    atomic_store_explicit(&r->clock_read_ns, clock, memory_order_relaxed);
    return true;
}

/* True when a thread has ended. */
static bool visit_all(uint64_t now_ns, bool timers)
{
    bool ended = false, moved;
    for (uint32_t i = 0; i < clp_table_count(); i++) {
        struct clp_record *r = clp_table_at(i);
        if (!r || !is_live(r))
            continue;
        if (r->fresh && state.names_left) {
            state.names_left--;
            look_at_name(r);
        }
        if (!read_clock(r, now_ns, &moved))
            ended = true;
        else if (timers)
            tend_timer(r, moved, now_ns);
    }
    return ended;
}

/* All clocks, with threads that came in place of ended ones. Returns how much the running threads
 * may have used since their clocks were read. */
static uint64_t read_all_clocks(uint64_t now_ns, bool timers)
{
    clp_table_read_inboxes();
    list_if_due(now_ns);
    uint64_t began = clp_clock_monotonic_ns();
    if (visit_all(now_ns, timers)) {
        list_tasks(now_ns);
        began = clp_clock_monotonic_ns();
        (void)visit_all(now_ns, timers);
    }
    uint32_t threads = clp_threads_count();
    return (clp_clock_monotonic_ns() - began) * CLP_MIN(state.cpus, threads);
}

static void refresh_quota(uint64_t now_ns)
{
    struct clp_thread_table *t = &clp_thread_table;
    if (now_ns - state.quota_at_ns < QUOTA_EVERY_NS)
        return;
    state.quota_at_ns = now_ns;
    uint32_t allowed = 0;
    if (clp_probe_result(CLP_PROBE_TIMER) == 0)
        allowed = clp_quota_read(atomic_load(&t->timers));
    atomic_store(&t->timers_allowed, allowed);
}

/* The quota has shrunk below what is held: others need the slots more. */
static void give_back_excess(uint64_t now_ns)
{
    struct clp_thread_table *t = &clp_thread_table;
    for (uint32_t i = 0; i < clp_table_count(); i++) {
        if (atomic_load(&t->timers) <= atomic_load(&t->timers_allowed))
            return;
        struct clp_record *r = clp_table_at(i);
        if (r && clp_record_has_timer(r)) {
            clp_record_take_timer(r, now_ns);
            r->waits_for_timer = true;
            state.refused++;
        }
    }
}

/* ---- threads.h ---- */

/* Threads that are busy now should not wait for the next pass; the others lose theirs later. */
static void give_first_timers(uint64_t now_ns)
{
    for (uint32_t i = 0; i < clp_table_count() && clp_timers_plentiful(); i++) {
        struct clp_record *r = clp_table_at(i);
        if (r && is_live(r) && clp_record_wants_stacks(r) && !clp_record_has_timer(r))
            (void)clp_record_give_timer(r, r->pub.seen_ns, now_ns, clp_record_first_expiry(r));
    }
}

static void set_interval(uint64_t interval_ns)
{
    struct clp_thread_table *t = &clp_thread_table;
    uint64_t tick = clp_clock_tick_ns();
    clp_account_set_unit(CLP_MAX(interval_ns, tick));
    clp_capture_set_interval(interval_ns);
    clp_lock(&t->lock);
    t->interval_ns = interval_ns;
    t->tick_ns = tick;
    clp_unlock(&t->lock);
}

static void set_native_stacks(bool on)
{
    bool look_again = on && !clp_thread_table.native_stacks; /* who of them blocks the signal? */
    clp_thread_table.native_stacks = on;
    for (uint32_t i = 0; look_again && i < clp_table_count(); i++) {
        struct clp_record *r = clp_table_at(i);
        if (r && r->pub.kind == CLP_THREAD_NATIVE)
            r->fresh = true;
    }
}

static void set_sampling(bool on)
{
    clp_lock(&clp_thread_table.lock);
    clp_thread_table.sampling = on;
    clp_unlock(&clp_thread_table.lock);
}

void clp_threads_start(uint64_t interval_ns, bool native_stacks)
{
    if (!clp_thread_table.records || clp_capture_forked())
        return;
    bool resumes = interval_ns && !clp_thread_table.interval_ns;
    set_native_stacks(native_stacks);
    set_interval(interval_ns);
    if (clp_thread_table.sampling && !resumes)
        return;
    uint64_t now = clp_clock_monotonic_ns();
    state.own_tid = (int32_t)clp_raw3(SYS_gettid, 0, 0, 0);
    state.cpus = usable_cpus();
    state.quota_at_ns = state.listed_at_ns = 0;
    if (clp_probe_result(CLP_PROBE_ARCH_PRCTL) == 0)
        clp_capture_allow_arch_prctl();
    refresh_quota(now);
    set_sampling(true);
    state.pass++;
    state.names_left = UINT32_MAX;
    (void)read_all_clocks(now, false);
    clp_account_baseline(now);
    give_first_timers(now);
}

void clp_threads_stop(void)
{
    if (!clp_thread_table.records || !clp_thread_table.sampling || clp_capture_forked())
        return;
    clp_capture_set_interval(0);
    set_sampling(false);
    clp_table_read_inboxes();
    /* Only threads that callbacks will tell about stay: nobody looks for the others' end now. */
    for (uint32_t i = 0; i < clp_table_count(); i++) {
        clp_lock(&clp_thread_table.lock);
        struct clp_record *r = clp_table_at(i);
        if (r && r->key_clr && is_live(r))
            clp_record_take_timer(r, 0);
        else if (r)
            clp_table_free(r);
        clp_unlock(&clp_thread_table.lock);
    }
}

/* The pool names its workers, and takes a name away that a work item has given them. */
static void count_managed(void)
{
    static const char worker[] = ".NET TP Worker";
    state.managed = state.pool = 0;
    for (uint32_t i = 0; i < clp_table_count(); i++) {
        const struct clp_record *r = clp_table_at(i);
        if (!r || !is_live(r) || r->pub.kind != CLP_THREAD_MANAGED)
            continue;
        state.managed++;
        state.pool += strcmp(r->pub.name, worker) == 0;
    }
}

uint64_t clp_threads_scan(uint64_t now_ns)
{
    if (!clp_thread_table.records || !clp_thread_table.sampling || clp_capture_forked())
        return SCAN_MAX_NS;
    uint64_t began = clp_clock_self_ns();
    state.pass++;
    state.any_moved = false;
    state.looks_left = LOOKS_A_PASS;
    state.names_left = NAMES_A_PASS;
    retire_ended(now_ns);
    refresh_quota(now_ns);
    give_back_excess(now_ns);
    uint64_t slack = read_all_clocks(now_ns, true);
    clp_account_short_lived(now_ns, slack, false);
    clp_timers_rotate(now_ns);
    clp_bounds_learn(now_ns);
    count_managed();
    uint64_t cost = clp_clock_self_ns() - began;
    uint64_t pause = CLP_MAX(cost * SCAN_COST_FACTOR, SCAN_MIN_NS);
    /* A process that sleeps is looked at less and less often, where wall samples look as well. */
    if (!state.any_moved && clp_thread_table.ended)
        pause = CLP_MAX(pause, CLP_MIN(2 * state.pause_ns, SCAN_QUIET_NS));
    state.pause_ns = CLP_MIN(pause, SCAN_MAX_NS);
    return state.pause_ns;
}

void clp_threads_flush(uint64_t now_ns)
{
    if (!clp_thread_table.records || !clp_thread_table.sampling || clp_capture_forked())
        return;
    state.pass++; /* the ring has been emptied since the last one */
    state.looks_left = LOOKS_A_PASS;
    state.names_left = NAMES_A_PASS;
    retire_ended(now_ns);
    uint64_t slack = read_all_clocks(now_ns, true); /* a burst that it sees, no later pass will */
    clp_account_short_lived(now_ns, slack, true);
    for (uint32_t i = 0; i < clp_table_count(); i++) {
        struct clp_record *r = clp_table_at(i);
        if (r)
            clp_account_residual(r, now_ns);
    }
}

struct clp_thread *clp_threads_by_slot(uint32_t slot)
{
    struct clp_record *r = slot < clp_table_count() ? clp_table_at(slot) : NULL;
    return r ? &r->pub : NULL;
}

uint32_t clp_threads_count(void)
{
    return atomic_load(&clp_thread_table.used);
}

uint32_t clp_threads_managed(uint32_t *ret_pool)
{
    *ret_pool = state.pool;
    return state.managed;
}

uint32_t clp_threads_timers(void)
{
    return atomic_load(&clp_thread_table.timers);
}

uint64_t clp_threads_quota_refused(void)
{
    return state.refused;
}

uint64_t clp_threads_table_refused(void)
{
    return atomic_load(&clp_thread_table.refused);
}

size_t clp_threads_bytes(void)
{
    size_t each = sizeof(struct clp_record) + sizeof(struct clp_thread_slot);
    return clp_table_count() * each + clp_thread_table.fixed_bytes;
}
