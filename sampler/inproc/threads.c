/* The loop's side of threads.h: listing, clocks, accounting. */
#include "sampler/inproc/threads.h"

#include "base/core/text.h"
#include "sampler/inproc/bounds.h"
#include "sampler/inproc/clock.h"
#include "sampler/inproc/probe.h"
#include "sampler/inproc/quota.h"
#include "sampler/inproc/rawcall.h"
#include "sampler/inproc/tasks.h"
#include "sampler/inproc/thread_table.h"
#include "sampler/inproc/timers.h"

#include <errno.h>
#include <string.h>

#define SCAN_MIN_NS (100 * CLP_NSEC_PER_MSEC)
#define SCAN_MAX_NS (5 * CLP_NSEC_PER_SEC)
#define SCAN_COST_FACTOR 1000 /* a pass may cost 0.1 % of the time until the next one */
#define LIST_EVERY_NS CLP_NSEC_PER_SEC
#define QUOTA_EVERY_NS CLP_NSEC_PER_SEC
#define EMIT_EVERY_NS CLP_NSEC_PER_SEC
#define NAME_SETTLES_NS (10 * CLP_NSEC_PER_SEC) /* threads name themselves after they started */
#define ACTIVE_NS CLP_NSEC_PER_SEC
#define IDLE_LIMIT_NS (10 * CLP_NSEC_PER_SEC)
#define IDLE_LIMIT_MAX_NS (300 * CLP_NSEC_PER_SEC)
#define BLOCKED_AFTER 3  /* intervals without a sample */
#define LOOKS_A_PASS 8u  /* 20 us each */
#define NAMES_A_PASS 16u /* 7 us each; more come and go than anybody wants to read about */
#define BOUNDS_EVERY_NS (20 * CLP_NSEC_PER_MSEC)
#define BOUNDS_AT_ONCE 64u
#define SHORT_LIVED_MIN_NS CLP_NSEC_PER_MSEC

static struct {
    struct clp_threads_sink sink;
    struct clp_thread process;
    int32_t own_tid, pid;
    uint32_t cpus;
    bool native_stacks;
    uint64_t unit_ns; /* the interval, or the kernel's tick if that is longer */
    uint64_t pass;
    int64_t stamp;
    uint64_t listed_at_ns, quota_at_ns, bounds_at_ns, short_at_ns;
    uint64_t process_start_ns; /* process clock at the baseline */
    uint64_t emitted_ns;       /* all CPU time given out since the baseline */
    uint64_t refused;          /* times a thread was left without a timer */
    uint32_t looks_left;       /* at signal masks, in this pass */
    uint32_t names_left;       /* to be read from /proc, in this pass */
} state;

/* Native threads that the runtime makes for itself, by the kernel's 15 bytes of their names
 * (dotnet/runtime 8 - 10). A list, not the prefix ".NET ": threads of foreign libraries inherit the
 * name of the managed thread that started them. */
static const char *const runtime_threads[] = {
    ".NET SynchManag", ".NET EventPipe", ".NET DebugPipe", ".NET Debugger",   ".NET Finalizer",
    ".NET Tiered Com", ".NET BGC",       ".NET Server GC", ".NET SigHandler",
};

static struct clp_record *record(uint32_t i)
{
    struct clp_record *r = &clp_thread_table.records[i];
    return atomic_load_explicit(&r->state, memory_order_acquire) == CLP_RECORD_FREE ? NULL : r;
}

static uint32_t record_count(void)
{
    return atomic_load(&clp_thread_table.high_water);
}

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
    state.sink = *sink;
    state.pid = (int32_t)clp_raw3(SYS_getpid, 0, 0, 0);
    state.process = (struct clp_thread){.thread_id = 1,
                                        .slot = CLP_RECORD_NONE,
                                        .tid = state.pid,
                                        .kind = CLP_THREAD_PROCESS,
                                        .name_version = 1,
                                        .alive = true};
    char comm[CLP_TASK_COMM_BYTES];
    if (clp_tasks_comm(state.pid, comm) == 0)
        memcpy(state.process.name, comm, sizeof(comm));
    return clp_table_init(max_threads);
}

/* ---- emission ---- */

static void emit(const struct clp_thread *t, enum clp_special special, uint64_t ns, uint64_t now_ns)
{
    if (!ns)
        return;
    state.emitted_ns += ns;
    state.sink.time(state.sink.user, t, special, ns, now_ns);
}

static bool wants_stacks(const struct clp_record *r)
{
    return clp_record_wants_stacks(r, state.native_stacks);
}

/* Did the thread keep the signal blocked since its last sample? Either a pass has seen it, or the
 * thread ran nearly all the time: then each tick found it and an expired timer would have struck. A
 * thread that shares its CPU may be missed by many ticks in a row (64 ms of CPU time were seen on
 * two CPUs with nine busy threads); such time belongs to the sample that follows. */
static bool was_blocked(const struct clp_record *r, uint64_t cpu_ns, uint64_t time_ns)
{
    uint64_t wall = time_ns > r->counted_at_ns ? time_ns - r->counted_at_ns : 0;
    return r->seen_blocked || cpu_ns / 3 * 4 >= wall;
}

/* The part of the time since the last sample for which a timer ran and should have struck: all
 * beyond three intervals. Time before the timer was armed does not count. */
static uint64_t overdue_part(const struct clp_record *r, uint64_t clock_ns, uint32_t lost)
{
    uint64_t from = CLP_MAX(r->pub.accounted_ns, r->timed_from_ns);
    uint64_t cap = BLOCKED_AFTER * state.unit_ns * (1 + (uint64_t)lost);
    return clock_ns > from + cap ? clock_ns - from - cap : 0;
}

static uint64_t blocked_part(const struct clp_record *r, uint64_t clock_ns, uint64_t time_ns,
                             uint32_t lost)
{
    uint64_t overdue = overdue_part(r, clock_ns, lost);
    uint64_t from = CLP_MAX(r->pub.accounted_ns, r->timed_from_ns);
    return overdue && was_blocked(r, clock_ns - from, time_ns) ? overdue : 0;
}

/* Everything up to this clock reading has been given out. */
static void count_up_to(struct clp_record *r, uint64_t clock_ns, uint64_t time_ns)
{
    r->pub.accounted_ns = clock_ns;
    r->counted_at_ns = time_ns;
    r->seen_blocked = false;
}

/* Time for which there is no new stack, in the order of what is known about it. */
static enum clp_special residual_kind(const struct clp_record *r)
{
    if (!wants_stacks(r))
        return CLP_SPECIAL_NATIVE_THREAD;
    if (r->waits_for_timer)
        return CLP_SPECIAL_NO_TIMER;
    if (r->sampled)
        return CLP_SPECIAL_NONE;
    return is_live(r) ? CLP_SPECIAL_UNSAMPLED : CLP_SPECIAL_THREAD_ENDED;
}

static void emit_residual(struct clp_record *r, uint64_t now_ns)
{
    uint64_t clock = r->pub.seen_ns, all = clock - r->pub.accounted_ns;
    if (clock <= r->pub.accounted_ns)
        return;
    enum clp_special kind = residual_kind(r);
    uint64_t blocked = 0;
    if (kind != CLP_SPECIAL_NATIVE_THREAD && clp_record_has_timer(r))
        blocked = blocked_part(r, clock, now_ns, 0);
    count_up_to(r, clock, now_ns);
    emit(&r->pub, CLP_SPECIAL_SIGNALS_BLOCKED, blocked, now_ns);
    emit(&r->pub, kind, all - blocked, now_ns);
}

/* Process clock minus all that is known. `slack_ns`: what running threads may have used between the
 * reading of their clocks and that of the process. Computed from totals each time, so that an error
 * of one pass is taken back by the next. */
static void emit_short_lived(uint64_t now_ns, uint64_t slack_ns, bool force)
{
    uint64_t process = clp_clock_process_ns() - state.process_start_ns;
    uint64_t known = state.emitted_ns + slack_ns;
    for (uint32_t i = 0; i < record_count(); i++) {
        const struct clp_record *r = record(i);
        if (r && r->pub.seen_ns > r->pub.accounted_ns)
            known += r->pub.seen_ns - r->pub.accounted_ns;
    }
    bool due = force || now_ns - state.short_at_ns >= EMIT_EVERY_NS;
    if (!due || process < known + (force ? 1 : SHORT_LIVED_MIN_NS))
        return;
    state.short_at_ns = now_ns;
    emit(&state.process, CLP_SPECIAL_SHORT_LIVED, process - known, now_ns);
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
    if (!state.native_stacks || r->pub.kind != CLP_THREAD_NATIVE)
        return false;
    return clp_tasks_blocked(r->pub.tid, &blocked) < 0 || blocked >> (SIGRTMIN - 1) & 1;
}

static void look_at_name(struct clp_record *r)
{
    char comm[CLP_TASK_COMM_BYTES];
    r->fresh = false;
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
 * thread at its cursor ends, so a thread that is not listed may well be alive. Their clocks tell.
 */
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
    for (uint32_t i = 0; i < record_count(); i++) {
        struct clp_record *r = record(i);
        if (!r || is_live(r) || r->ended_at_pass == state.pass)
            continue;
        emit_residual(r, now_ns);
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
        if (overdue_part(r, clock, 0))
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
    if (!wants_stacks(r)) {
        clp_record_take_timer(r, now_ns);
        if (now_ns - r->counted_at_ns >= EMIT_EVERY_NS)
            emit_residual(r, now_ns);
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
    for (uint32_t i = 0; i < record_count(); i++) {
        struct clp_record *r = record(i);
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
        (void)visit_all(now_ns, false);
    }
    return (clp_clock_monotonic_ns() - began) * CLP_MIN(state.cpus, clp_threads_count());
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
    for (uint32_t i = 0; i < record_count(); i++) {
        if (atomic_load(&t->timers) <= atomic_load(&t->timers_allowed))
            return;
        struct clp_record *r = record(i);
        if (r && clp_record_has_timer(r)) {
            clp_record_take_timer(r, now_ns);
            r->waits_for_timer = true;
            state.refused++;
        }
    }
}

/* ---- stack bounds ---- */

static void set_bounds(const struct clp_record *r, uint64_t low, uint64_t high)
{
    struct clp_thread_slot *s = clp_table_slot(r);
    if (atomic_load(&s->stack_high))
        return; /* told by the thread itself meanwhile */
    atomic_store(&s->stack_low, low);
    atomic_store_explicit(&s->stack_high, high, memory_order_release);
}

/* A stack that cannot be bounded lies nowhere: every SP is outside, samples have no stack. */
static void learn_bounds(uint64_t now_ns)
{
    struct clp_bounds b[BOUNDS_AT_ONCE];
    struct clp_record *who[BOUNDS_AT_ONCE];
    size_t n = 0;
    if (now_ns - state.bounds_at_ns < BOUNDS_EVERY_NS)
        return;
    for (uint32_t i = 0; i < record_count() && n < BOUNDS_AT_ONCE; i++) {
        struct clp_record *r = record(i);
        if (!r || !r->bounds_wanted)
            continue;
        who[n] = r;
        b[n++] = (struct clp_bounds){.fs_base = r->fs_base, .main_thread = r->pub.tid == state.pid};
    }
    if (!n)
        return;
    state.bounds_at_ns = now_ns;
    if (clp_bounds_find(b, n) < 0)
        return;
    for (size_t i = 0; i < n; i++) {
        who[i]->bounds_wanted = false;
        set_bounds(who[i], b[i].high ? b[i].low : 0, b[i].high ? b[i].high : 1);
    }
}

/* ---- threads.h ---- */

/* What all threads have used so far is not ours to tell. */
static void take_baseline(uint64_t now_ns)
{
    for (uint32_t i = 0; i < record_count(); i++) {
        struct clp_record *r = record(i);
        if (!r)
            continue;
        count_up_to(r, r->pub.seen_ns, now_ns);
        r->timed_from_ns = r->pub.seen_ns;
        r->pub.moved_at_ns = now_ns;
        r->sampled = r->waits_for_timer = false;
    }
    state.process_start_ns = clp_clock_process_ns();
    state.emitted_ns = 0;
    state.short_at_ns = now_ns;
}

/* Threads that are busy now should not wait for the next pass. Those that are not lose theirs
 * later. */
static void give_first_timers(uint64_t now_ns)
{
    for (uint32_t i = 0; i < record_count() && clp_timers_plentiful(); i++) {
        struct clp_record *r = record(i);
        if (r && is_live(r) && wants_stacks(r) && !clp_record_has_timer(r))
            (void)clp_record_give_timer(r, r->pub.seen_ns, now_ns, clp_record_first_expiry(r));
    }
}

static void set_interval(uint64_t interval_ns)
{
    struct clp_thread_table *t = &clp_thread_table;
    uint64_t tick = clp_clock_tick_ns();
    state.unit_ns = CLP_MAX(interval_ns, tick);
    clp_capture_set_interval(interval_ns);
    clp_lock(&t->lock);
    t->interval_ns = interval_ns;
    t->tick_ns = tick;
    clp_unlock(&t->lock);
}

static void set_native_stacks(bool on)
{
    bool look_again =
        on && !state.native_stacks; /* who of them blocks the signal is not known yet */
    state.native_stacks = on;
    for (uint32_t i = 0; look_again && i < record_count(); i++) {
        struct clp_record *r = record(i);
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
    set_native_stacks(native_stacks);
    set_interval(interval_ns);
    if (clp_thread_table.sampling)
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
    take_baseline(now);
    give_first_timers(now);
}

void clp_threads_stop(void)
{
    if (!clp_thread_table.records || !clp_thread_table.sampling || clp_capture_forked())
        return;
    clp_capture_set_interval(0);
    set_sampling(false);
    clp_table_read_inboxes();
    /* Only threads that callbacks will tell about are kept: nobody looks for the others' end now.
     */
    for (uint32_t i = 0; i < record_count(); i++) {
        clp_lock(&clp_thread_table.lock);
        struct clp_record *r = record(i);
        if (r && r->key_clr && is_live(r))
            clp_record_take_timer(r, 0);
        else if (r)
            clp_table_free(r);
        clp_unlock(&clp_thread_table.lock);
    }
}

uint64_t clp_threads_scan(uint64_t now_ns)
{
    if (!clp_thread_table.records || !clp_thread_table.sampling || clp_capture_forked())
        return SCAN_MAX_NS;
    uint64_t began = clp_clock_self_ns();
    state.pass++;
    state.looks_left = LOOKS_A_PASS;
    state.names_left = NAMES_A_PASS;
    retire_ended(now_ns);
    refresh_quota(now_ns);
    give_back_excess(now_ns);
    uint64_t slack = read_all_clocks(now_ns, true);
    emit_short_lived(now_ns, slack, false);
    clp_timers_rotate(now_ns, state.native_stacks);
    learn_bounds(now_ns);
    uint64_t pause = (clp_clock_self_ns() - began) * SCAN_COST_FACTOR;
    return CLP_MIN(CLP_MAX(pause, SCAN_MIN_NS), SCAN_MAX_NS);
}

void clp_threads_flush(uint64_t now_ns)
{
    if (!clp_thread_table.records || !clp_thread_table.sampling || clp_capture_forked())
        return;
    state.names_left = NAMES_A_PASS;
    uint64_t slack = read_all_clocks(now_ns, false);
    emit_short_lived(now_ns, slack, true);
    for (uint32_t i = 0; i < record_count(); i++) {
        struct clp_record *r = record(i);
        if (r)
            emit_residual(r, now_ns);
    }
}

static struct clp_record *record_of(const struct clp_capture *c)
{
    struct clp_thread_slot *s = clp_capture_slot(c->slot);
    if (!clp_thread_table.records || !s || c->slot >= record_count() ||
        atomic_load(&s->generation) != c->generation)
        return NULL;
    return record(c->slot);
}

/* The thread runs, only its stack could not be copied: not the next sample's fault either. */
static void want_bounds(struct clp_record *r, const struct clp_capture *c)
{
    r->fs_base = c->stack_high;
    r->bounds_wanted = true;
    r->timed_from_ns = CLP_MAX(r->timed_from_ns, c->thread_cpu_ns);
    learn_bounds(clp_clock_monotonic_ns());
}

struct clp_thread *clp_threads_account(const struct clp_capture *c, uint64_t *ret_value)
{
    struct clp_record *r = record_of(c);
    if (!r)
        return NULL;
    *ret_value = 0;
    r->pub.moved_at_ns = CLP_MAX(r->pub.moved_at_ns, c->time_ns);
    if (c->flags & CLP_CAPTURE_NO_BOUNDS) {
        want_bounds(r, c);
        return &r->pub;
    }
    r->sampled = true;
    if (c->thread_cpu_ns <= r->pub.accounted_ns)
        return &r->pub; /* its time went out with a flush meanwhile */
    uint64_t all = c->thread_cpu_ns - r->pub.accounted_ns;
    uint64_t blocked = blocked_part(r, c->thread_cpu_ns, c->time_ns, c->lost);
    count_up_to(r, c->thread_cpu_ns, c->time_ns);
    r->pub.seen_ns = CLP_MAX(r->pub.seen_ns, c->thread_cpu_ns);
    emit(&r->pub, CLP_SPECIAL_SIGNALS_BLOCKED, blocked, c->time_ns);
    *ret_value = all - blocked;
    state.emitted_ns += *ret_value;
    return &r->pub;
}

struct clp_thread *clp_threads_by_slot(uint32_t slot)
{
    struct clp_record *r = slot < record_count() ? record(slot) : NULL;
    return r ? &r->pub : NULL;
}

const struct clp_thread *clp_threads_process(void)
{
    return &state.process;
}

uint32_t clp_threads_count(void)
{
    return atomic_load(&clp_thread_table.used);
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
    return record_count() * each + clp_thread_table.fixed_bytes;
}
