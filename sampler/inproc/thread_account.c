/* Where each nanosecond of CPU time goes; the table of it is in docs/capture.md. */
#include "sampler/inproc/thread_table.h"

#include "sampler/inproc/clock.h"
#include "sampler/inproc/tasks.h"

#include <string.h>

#define BLOCKED_AFTER 3 /* intervals without a sample */
#define SHORT_LIVED_EVERY_NS CLP_NSEC_PER_SEC
#define SHORT_LIVED_MIN_NS CLP_NSEC_PER_MSEC

static struct {
    struct clp_threads_sink sink;
    struct clp_thread process;
    uint64_t unit_ns;          /* the interval, or the kernel's tick if that is longer */
    uint64_t process_start_ns; /* process clock at the baseline */
    uint64_t emitted_ns;       /* all CPU time given out since the baseline */
    uint64_t short_at_ns;
} state;

void clp_account_init(const struct clp_threads_sink *sink, int32_t pid)
{
    char comm[CLP_TASK_COMM_BYTES];
    state.sink = *sink;
    state.process = (struct clp_thread){.thread_id = 1,
                                        .slot = CLP_RECORD_NONE,
                                        .tid = pid,
                                        .kind = CLP_THREAD_PROCESS,
                                        .name_version = 1,
                                        .alive = true};
    if (clp_tasks_comm(pid, comm) == 0)
        memcpy(state.process.name, comm, sizeof(comm));
}

void clp_account_set_unit(uint64_t ns)
{
    state.unit_ns = ns;
}

static void emit(const struct clp_thread *t, enum clp_special special, uint64_t ns, uint64_t now_ns)
{
    if (!ns)
        return;
    state.emitted_ns += ns;
    state.sink.time(state.sink.user, t, special, ns, now_ns);
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
uint64_t clp_account_overdue(const struct clp_record *r, uint64_t clock_ns, uint32_t lost)
{
    uint64_t from = CLP_MAX(r->pub.accounted_ns, r->timed_from_ns);
    uint64_t cap = BLOCKED_AFTER * state.unit_ns * (1 + (uint64_t)lost);
    return clock_ns > from + cap ? clock_ns - from - cap : 0;
}

static uint64_t blocked_part(const struct clp_record *r, uint64_t clock_ns, uint64_t time_ns,
                             uint32_t lost)
{
    uint64_t overdue = clp_account_overdue(r, clock_ns, lost);
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
    if (!clp_record_wants_stacks(r))
        return CLP_SPECIAL_NATIVE_THREAD;
    if (r->waits_for_timer)
        return CLP_SPECIAL_NO_TIMER;
    if (r->sampled)
        return CLP_SPECIAL_NONE;
    return atomic_load(&r->state) == CLP_RECORD_LIVE ? CLP_SPECIAL_UNSAMPLED
                                                     : CLP_SPECIAL_THREAD_ENDED;
}

void clp_account_residual(struct clp_record *r, uint64_t now_ns)
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
void clp_account_short_lived(uint64_t now_ns, uint64_t slack_ns, bool force)
{
    uint64_t process = clp_clock_process_ns() - state.process_start_ns;
    uint64_t known = state.emitted_ns + slack_ns;
    for (uint32_t i = 0; i < clp_table_count(); i++) {
        const struct clp_record *r = clp_table_at(i);
        if (r && r->pub.seen_ns > r->pub.accounted_ns)
            known += r->pub.seen_ns - r->pub.accounted_ns;
    }
    bool due = force || now_ns - state.short_at_ns >= SHORT_LIVED_EVERY_NS;
    if (!due || process < known + (force ? 1 : SHORT_LIVED_MIN_NS))
        return;
    state.short_at_ns = now_ns;
    emit(&state.process, CLP_SPECIAL_SHORT_LIVED, process - known, now_ns);
}

/* What all threads have used so far is not ours to tell. */
void clp_account_baseline(uint64_t now_ns)
{
    for (uint32_t i = 0; i < clp_table_count(); i++) {
        struct clp_record *r = clp_table_at(i);
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

static struct clp_record *record_of(const struct clp_capture *c)
{
    struct clp_thread_slot *s = clp_capture_slot(c->slot);
    if (!clp_thread_table.records || !s || c->slot >= clp_table_count() ||
        atomic_load(&s->generation) != c->generation)
        return NULL;
    return clp_table_at(c->slot);
}

struct clp_thread *clp_threads_account(const struct clp_capture *c, uint64_t *ret_value)
{
    struct clp_record *r = record_of(c);
    if (!r)
        return NULL;
    *ret_value = 0;
    r->pub.moved_at_ns = CLP_MAX(r->pub.moved_at_ns, c->time_ns);
    if (c->flags & CLP_CAPTURE_NO_BOUNDS) {
        clp_bounds_want(r, c);
        return &r->pub;
    }
    r->sampled = true;
    r->wall.ran = true;
    r->wall.ran_span = c->span;
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

const struct clp_thread *clp_threads_process(void)
{
    return &state.process;
}
