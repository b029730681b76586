#include "sampler/inproc/wall.h"
#include "sampler/inproc/spans.h"

#include "base/core/arena.h"
#include "base/core/random.h"
#include "sampler/inproc/clock.h"
#include "sampler/inproc/collect.h"
#include "sampler/inproc/image_files.h"
#include "sampler/inproc/rawcall.h"
#include "sampler/inproc/thread_table.h"
#include "sampler/inproc/wall_shot.h"

#include <errno.h>
#include <string.h>

#define INTERVAL_NS (10 * CLP_NSEC_PER_MSEC)
#define INTERVAL_MAX_NS (4 * CLP_NSEC_PER_SEC)
#define IDLE_SHARE 4 /* an idle thread is looked at after a quarter of its rest so far */
#define GRID_NS (128 * CLP_NSEC_PER_MSEC)
/* Rounds are put off so far for what they cost. */
#define INTERVAL_BUSY_NS (25 * CLP_NSEC_PER_MSEC)
#define WAKING_NS 40000u                      /* of CPU time, the loop's and of whom it displaces */
#define ROUND_COST_NS (CLP_NSEC_PER_MSEC / 2) /* what a round saves up for */
#define BURST_NS (20 * CLP_NSEC_PER_MSEC)     /* of CPU time that was saved up */
#define LOOKS_BETWEEN_CHECKS 16u
#define TRIES 3u                     /* at a thread that ran while it was looked at */
#define TELL_NS CLP_NSEC_PER_SEC * 5 /* a wait that goes on is told of at least so often */
#define FLUSH_SHOTS 512u
#define SHORT_LIFE_NS (20 * CLP_NSEC_PER_MSEC)
#define FROZEN_NS CLP_NSEC_PER_SEC /* beyond what a round may be late */
#define OWN_WAIT_EVERY_NS (100 * CLP_NSEC_PER_MSEC)

#define ENDS_LEAST 8u   /* to be believed */
#define ENDS_MOST 1024u /* then it fades */

/* How long threads waited for a CPU near a look, where nobody had to guess in which span. */
struct clp_wall_waits {
    uint64_t waited_ns;
    uint32_t ends; /* of intervals */
};

static struct {
    bool running;
    struct clp_wall_sink sink;
    uint32_t budget_ppm;
    uint64_t pass;
    uint64_t *due_ns; /* by record; 0: to be looked at by its record */
    uint32_t cursor;
    uint64_t every_ns;   /* between two rounds of looks, in the mean */
    uint64_t drawn_ns;   /* no round before */
    uint64_t planned_ns; /* the next one, chosen before: what wakes the loop earlier has no part */
    uint64_t mean_cost_ns;
    int64_t tokens_ns; /* CPU time that may be spent now */
    uint64_t refilled_ns;
    uint64_t round_ns;    /* of the last round */
    uint64_t own_wait_ns; /* the loop's own time on the run queue then, or shortly before */
    uint64_t own_read_ns;
    uint64_t random;
    struct clp_wall_waits waits[2][2]; /* inside a request or not; able to run at the look or not */
    struct clp_wall_totals totals;
} W;

/* ---- instants ------------------------------------------------------------------------------ */

static uint64_t random_below(uint64_t n)
{
    return n ? clp_random_u64(&W.random) % n : 0;
}

/* Half to one and a half times the mean, chosen before the interval begins. */
static uint64_t random_after(uint64_t now_ns, uint64_t mean_ns)
{
    return now_ns + mean_ns / 2 + random_below(mean_ns);
}

/* What moves is looked at in each round. Long intervals end on a grid: many idle threads then share
 * a round, and the loop need not wake for each. */
static void set_due(const struct clp_record *r, uint64_t now_ns)
{
    uint64_t idle = now_ns > r->wall.changed_ns ? now_ns - r->wall.changed_ns : 0;
    uint64_t mean = CLP_MIN(idle / IDLE_SHARE, INTERVAL_MAX_NS);
    uint64_t due = mean > W.every_ns ? random_after(now_ns, mean) : now_ns;
    if (mean >= GRID_NS)
        due += GRID_NS - due % GRID_NS;
    else if (mean >= GRID_NS / 4)
        due += GRID_NS / 4 - due % (GRID_NS / 4);
    W.due_ns[clp_table_index(r)] = due;
}

/* ---- what is told -------------------------------------------------------------------------- */

static void tell(const struct clp_record *r, enum clp_special special, uint16_t flags, uint64_t ns,
                 uint64_t time_ns)
{
    if (ns)
        W.sink.wait(W.sink.user, &r->pub,
                    &(struct clp_feed_waiting){
                        .special = special, .flags = flags, .wait_ns = ns, .time_ns = time_ns});
}

static bool is_kernel_worker(const struct clp_record *r)
{
    return r->pub.kind == CLP_THREAD_NATIVE && strncmp(r->pub.name, "iou-", 4) == 0;
}

static bool wants_stacks(const struct clp_record *r)
{
    if (r->pub.kind == CLP_THREAD_NATIVE)
        return clp_thread_table.native_stacks && !is_kernel_worker(r);
    return r->pub.kind == CLP_THREAD_MANAGED || r->pub.kind == CLP_THREAD_RUNTIME;
}

/* The word for a wait whose stack is not known. */
static enum clp_special word_for(const struct clp_record *r)
{
    if (is_kernel_worker(r))
        return CLP_SPECIAL_KERNEL_WORKER;
    return wants_stacks(r) ? CLP_SPECIAL_UNKNOWN_WAIT : CLP_SPECIAL_NATIVE_THREAD;
}

/* Runnable time since it was last told; what the kernel does not count is none. */
static uint64_t cpu_wait_of(struct clp_record *r)
{
    struct clp_wall_thread *w = &r->wall;
    uint64_t delay, since = 0;
    if (clp_wall_shot_delay(r->pub.tid, r->pub.thread_id, &delay) < 0)
        return 0;
    if (w->delay_known && delay > w->delay_ns)
        since = delay - w->delay_ns;
    w->delay_ns = delay;
    w->delay_known = true;
    return since;
}

/* ---- runnable without a CPU ---------------------------------------------------------------- */

static void tell_runnable(const struct clp_record *r, const struct clp_span *span, uint64_t ns,
                          uint64_t time_ns)
{
    struct clp_feed_waiting w = {
        .flags = CLP_SAMPLE_CPU_WAIT, .wait_ns = ns, .time_ns = time_ns, .span = span};
    if (ns == 0)
        return;
    clp_spans_saw_root(span->local_root_span_id);
    W.sink.wait(W.sink.user, &r->pub, &w);
}

/* What a thread's cell says, and how often it has been written. */
static uint64_t current_span(const struct clp_record *r, struct clp_span *ret)
{
    const struct clp_span_cell *cell = atomic_load(&clp_table_slot(r)->span);
    uint64_t version = cell ? __atomic_load_n(&cell->version, __ATOMIC_ACQUIRE) : 0;
    (void)clp_span_read(cell, ret);
    return version;
}

static struct clp_wall_waits *waits_of(const struct clp_wall_look *look)
{
    return &W.waits[look->span.span_id != 0][look->could_run];
}

static void note_wait(const struct clp_wall_look *look, uint64_t ns)
{
    struct clp_wall_waits *waits = waits_of(look);
    waits->waited_ns += ns;
    if (++waits->ends == ENDS_MOST) {
        waits->waited_ns /= 2;
        waits->ends /= 2;
    }
}

/* The mean, in microseconds; 0: not known. */
static uint64_t usual_wait(const struct clp_wall_look *look)
{
    const struct clp_wall_waits *waits = waits_of(look);
    return waits->ends < ENDS_LEAST ? 0 : 1 + waits->waited_ns / waits->ends / 1000;
}

static void share_cpu_wait(const struct clp_record *r, const struct clp_wall_look *const *looks,
                           uint32_t n, uint64_t ns, uint64_t time_ns)
{
    uint64_t weights[3], all = 0;
    bool known = true;
    for (uint32_t i = 0; i < n; i++)
        known = (weights[i] = usual_wait(looks[i])) && known;
    for (uint32_t i = 0; i < n; i++)
        all += weights[i] = known ? weights[i] : 1;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t part = all == weights[i] ? ns : ns * weights[i] / all;
        tell_runnable(r, &looks[i]->span, part, time_ns);
        ns -= part;
        all -= weights[i];
    }
}

/* A thread that sleeps within a request does nothing else there; one that sleeps outside of them
 * has looked for work before. */
static bool has_waited(const struct clp_wall_look *look)
{
    return look->could_run || look->span.span_id == 0;
}

/* A thread that waits for a CPU has no stack that could be read, but its request can be. Where its
 * cell was not written since the last look, all of the time is that of one span, or of none; else
 * it is shared among those of the last look, of the last CPU sample since, and of now. A worker
 * that looks for work between two requests waits in neither, and for longer than in both: so the
 * parts are in the proportion of the waits near such looks where nobody had to guess. */
static void tell_cpu_wait(struct clp_record *r, bool could_run, uint64_t ns, uint64_t time_ns)
{
    struct clp_wall_thread *w = &r->wall;
    struct clp_wall_look now = {.could_run = could_run}, ran = {w->ran_span, true};
    uint64_t version = current_span(r, &now.span);
    const struct clp_wall_look *looks[3];
    uint32_t n = 0;
    bool same = w->looked && version == w->version;
    if (same) {
        note_wait(&w->look, ns / 2);
        note_wait(&now, ns / 2);
    }
    if (!same && w->looked && has_waited(&w->look))
        looks[n++] = &w->look;
    if (!same && w->ran)
        looks[n++] = &ran;
    if (n == 0 || has_waited(&now))
        looks[n++] = &now;
    share_cpu_wait(r, looks, n, ns, time_ns);
    w->looked = true;
    w->ran = false;
    w->look = now;
    w->version = version;
}

/* The thread can run: what the kernel counted since the last look. */
static void look_at_runnable(struct clp_record *r, uint64_t now_ns, uint64_t clock_ns)
{
    uint64_t ns = clp_wall_account_take(&r->wall.account, now_ns, clock_ns, cpu_wait_of(r));
    tell_cpu_wait(r, true, ns, now_ns);
}

/* All that is owed, without a new stack.  `runnable`: the thread could run just now, so what the
 * kernel has not counted yet is most likely its wait for a CPU. */
static void tell_all(struct clp_record *r, uint64_t now_ns, uint64_t clock_ns, bool runnable)
{
    struct clp_wall_split s;
    bool moved = wants_stacks(r) && clock_ns != r->wall.clock_ns;
    uint64_t cpu_wait = moved ? cpu_wait_of(r) : 0;
    clp_wall_account_split(&r->wall.account, now_ns, clock_ns, cpu_wait, &s);
    enum clp_special word = r->wall.has_stack ? CLP_SPECIAL_NONE : word_for(r);
    if (runnable && !r->wall.has_stack) {
        s.cpu_wait_ns += s.old_ns + s.new_ns;
        s.old_ns = s.new_ns = 0;
    }
    tell(r, word, 0, s.old_ns + s.new_ns, now_ns);
    tell_cpu_wait(r, runnable, s.cpu_wait_ns, now_ns);
}

/* ---- a new stack --------------------------------------------------------------------------- */

static uint64_t hash_of(const struct clp_collect_stack *s, int32_t call, uint64_t span_id)
{
    uint64_t h = ((uint64_t)(uint32_t)call << 32 | s->flags) + 0x9e3779b97f4a7c15ull;
    h ^= span_id;
    for (uint16_t i = 0; i < s->count; i++) {
        h = (h ^ s->frames[i]) * 0xd6e8feb86659fd93ull;
        h ^= h >> 32;
    }
    return h | 1;
}

/* The span that the thread was in at the shot: writing another takes CPU time. */
static void span_of(const struct clp_record *r, const struct clp_wall_shot *shot,
                    struct clp_span *ret)
{
    const struct clp_span_cell *cell = atomic_load(&clp_table_slot(r)->span);
    uint64_t clock;
    *ret = (struct clp_span){0};
    if (!cell || !clp_span_read(cell, ret) || ret->span_id == 0)
        return;
    if (clp_clock_thread_ns(r->pub.tid, &clock) < 0 || clock != shot->clock_ns)
        *ret = (struct clp_span){0};
    clp_spans_saw_root(ret->local_root_span_id);
}

static void take_stack(struct clp_record *r, const struct clp_wall_shot *shot,
                       const struct clp_collect_stack *stack)
{
    struct clp_wall_thread *w = &r->wall;
    struct clp_wall_split s;
    struct clp_span span;
    span_of(r, shot, &span);
    uint64_t hash = hash_of(stack, shot->call, span.span_id);
    bool same = w->has_stack && hash == w->hash;
    /* A thread that has not run since we came has not waited for a CPU either. */
    uint64_t cpu_wait = shot->clock_ns > w->account.cpu_from_ns ? cpu_wait_of(r) : 0;
    clp_wall_account_split(&w->account, shot->time_ns, shot->clock_ns, cpu_wait, &s);
    tell_cpu_wait(r, false, s.cpu_wait_ns, shot->time_ns);
    if (!w->has_stack) { /* nothing that it could be shared with */
        s.new_ns += s.old_ns;
        s.old_ns = 0;
    }
    if (same) {
        tell(r, CLP_SPECIAL_NONE, 0, s.old_ns + s.new_ns, shot->time_ns);
    } else {
        tell(r, CLP_SPECIAL_NONE, 0, s.old_ns, shot->time_ns);
        struct clp_feed_sample sample = {.thread = &r->pub,
                                         .kind = CLP_SAMPLE_WALL,
                                         .value_ns = s.new_ns,
                                         .value2 = (uint64_t)(shot->call + 1),
                                         .time_ns = shot->time_ns,
                                         .flags = stack->flags,
                                         .count = stack->count,
                                         .hijacked = stack->hijacked,
                                         .frames = stack->frames,
                                         .span = &span};
        w->has_stack = W.sink.stack(W.sink.user, &sample);
    }
    w->hash = hash;
    w->clock_ns = shot->clock_ns;
}

int clp_wall_shoot(struct clp_record *r, uint32_t copy_bytes, struct clp_wall_shot *ret)
{
    const struct clp_thread_slot *slot = clp_table_slot(r);
    uint64_t object = atomic_load(&slot->thread_object), offset = clp_capture_hijack_offset();
    int e = -EAGAIN;
    for (unsigned i = 0; i < TRIES && e == -EAGAIN; i++) {
        e = clp_wall_shot_take(r->pub.tid, r->pub.thread_id, slot, copy_bytes,
                               clp_collect_hijack_stub(), object && offset ? object + offset : 0,
                               ret);
        W.totals.moved += e == -EAGAIN;
    }
    return e;
}

/* Shoots and walks; a stack that is larger than was copied is copied again. */
static int look_at(struct clp_record *r)
{
    struct clp_wall_shot shot;
    struct clp_collect_stack stack;
    int e = clp_wall_shoot(r, r->wall.copy_bytes, &shot);
    if (e < 0)
        return e;
    clp_collect_stack(&shot.in, clp_table_slot(r), W.pass, &stack);
    if (stack.flags & CLP_SAMPLE_TRUNCATED && r->wall.copy_bytes < CLP_WALL_COPY_MAX) {
        r->wall.copy_bytes = CLP_WALL_COPY_MAX;
        if ((e = clp_wall_shoot(r, CLP_WALL_COPY_MAX, &shot)) < 0)
            return e;
        clp_collect_stack(&shot.in, clp_table_slot(r), W.pass, &stack);
    }
    W.totals.stacks++;
    take_stack(r, &shot, &stack);
    return 0;
}

/* ---- visits -------------------------------------------------------------------------------- */

static void first_sight(struct clp_record *r)
{
    struct clp_wall_thread *w = &r->wall;
    w->begun = true;
    w->delay_known = true; /* born while we look: all of it is told */
    w->copy_bytes = CLP_WALL_COPY_MIN;
    w->changed_ns = r->made_at_ns;
}

static void visit(struct clp_record *r, uint64_t now_ns)
{
    struct clp_wall_thread *w = &r->wall;
    uint64_t clock;
    W.totals.visits++;
    if (!wants_stacks(r) || clp_clock_thread_ns(r->pub.tid, &clock) < 0) {
        w->changed_ns = 0; /* at leisure: its time is told at a flush, or at its end */
    } else if (w->has_stack && clock == w->clock_ns) {
        uint64_t now = clp_clock_monotonic_ns();
        clp_wall_account_sure(&w->account, now, clock);
        if (clp_wall_account_owed(&w->account, now, clock) > TELL_NS)
            tell_all(r, now, clock, false);
    } else {
        w->changed_ns = clp_clock_monotonic_ns();
        int e = look_at(r);
        if (!w->delay_known && clock > w->account.cpu_from_ns)
            (void)cpu_wait_of(r); /* what it waited before is not told */
        if (e < 0 && e != -EAGAIN && e != -EBUSY && e != -ESRCH) {
            w->has_stack = false;
            tell_all(r, w->changed_ns, clock, false);
        } else if (e == -EBUSY || e == -EAGAIN) {
            look_at_runnable(r, w->changed_ns, clock);
        }
    }
    set_due(r, now_ns);
}

/* A record whose due time is 0: free, or not seen before. */
static void meet(uint32_t index, uint64_t now_ns)
{
    struct clp_record *r = clp_table_at(index);
    if (!r || atomic_load(&r->state) != CLP_RECORD_LIVE)
        return;
    if (!r->wall.begun)
        first_sight(r);
    /* Rounds are made so much before what is due: none comes for its sake just now. */
    W.due_ns[index] = now_ns + W.every_ns / 2 + random_below(INTERVAL_NS);
}

/* Looks at all that are due until then. False: the budget is used up. */
static bool visit_due(uint64_t now_ns, uint64_t until_ns)
{
    uint32_t n = clp_table_count(), looks = 0;
    uint64_t began = clp_image_files_cost_ns();
    bool left = true;
    for (uint32_t i = 0; i < n && left; i++) {
        uint32_t index = W.cursor < n ? W.cursor : 0;
        W.cursor = index + 1;
        if (W.due_ns[index] == 0 || W.due_ns[index] > until_ns)
            continue;
        struct clp_record *r = clp_table_at(index);
        W.due_ns[index] = 0;
        if (r && atomic_load(&r->state) == CLP_RECORD_LIVE)
            visit(r, now_ns);
        if (++looks % LOOKS_BETWEEN_CHECKS == 0)
            left = (int64_t)(clp_image_files_cost_ns() - began) < W.tokens_ns;
    }
    uint64_t cost = clp_image_files_cost_ns() - began;
    W.totals.cost_ns += cost; /* what was measured alone */
    W.tokens_ns -= (int64_t)(cost + WAKING_NS);
    W.mean_cost_ns = (7 * W.mean_cost_ns + cost + WAKING_NS) / 8;
    return left && W.tokens_ns > 0;
}

/* Meets those that are new. When the next one is due; UINT64_MAX: never. */
static uint64_t next_due(uint64_t now_ns)
{
    uint32_t n = clp_table_count();
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        if (W.due_ns[i] == 0)
            meet(i, now_ns);
        if (W.due_ns[i])
            next = CLP_MIN(next, W.due_ns[i]);
    }
    return next;
}

static void refill(uint64_t now_ns)
{
    int64_t got = (int64_t)((now_ns - W.refilled_ns) / 1000 * W.budget_ppm / 1000);
    W.refilled_ns = now_ns;
    W.tokens_ns = CLP_MIN(W.tokens_ns + got, (int64_t)BURST_NS);
}

/* Until there is enough to be worth a round. */
static uint64_t saving_up_ns(void)
{
    uint64_t missing = (uint64_t)CLP_MAX((int64_t)ROUND_COST_NS - W.tokens_ns, (int64_t)0);
    return missing * 1000 / W.budget_ppm * 1000;
}

/* Few threads are looked at every 10 ms; many, or where looks are dear, so often that a round of
 * all of them is within the budget: fewer rounds cost less than rounds that are cut short. */
static void draw_round(uint64_t now_ns, bool left)
{
    uint64_t ns = W.mean_cost_ns * 1000 / W.budget_ppm * 1000;
    W.every_ns = CLP_MIN(CLP_MAX(ns, INTERVAL_NS), INTERVAL_BUSY_NS);
    W.drawn_ns = random_after(now_ns, W.every_ns) + (left ? 0 : saving_up_ns());
}

/* ---- a process that was stopped ------------------------------------------------------------ */

#define NOT_COUNTED                                                                                \
    UINT64_MAX /* by this kernel: then a busy machine looks like a frozen process                  \
                */

static uint64_t own_wait(void)
{
    uint64_t ns = 0;
    int32_t tid = (int32_t)clp_raw3(SYS_gettid, 0, 0, 0);
    return clp_wall_shot_delay(tid, UINT32_MAX, &ns) < 0 ? NOT_COUNTED : ns;
}

static void give_frozen(struct clp_record *r, uint64_t now_ns, uint64_t frozen_ns)
{
    uint64_t clock;
    struct clp_wall_account *a = &r->wall.account;
    if (!r->wall.begun || clp_clock_thread_ns(r->pub.tid, &clock) < 0)
        return;
    tell(r, CLP_SPECIAL_FROZEN, 0, clp_wall_account_take(a, now_ns, clock, frozen_ns), now_ns);
}

/* The loop sleeps for some 300 ms at most.  It was away for longer, and not because it had to wait
 * for a CPU: somebody has stopped the process, by a signal or a freezer. */
static void look_for_frozen(uint64_t now_ns)
{
    /* Wall time may have begun within this round, after its clock was read. */
    uint64_t away = now_ns > W.round_ns ? now_ns - W.round_ns : 0;
    if (away < FROZEN_NS && now_ns - W.own_read_ns < OWN_WAIT_EVERY_NS)
        return; /* the kernel makes a text of it: not in each round */
    uint64_t waited = own_wait();
    uint64_t queued = waited - W.own_wait_ns;
    W.own_wait_ns = waited;
    W.own_read_ns = now_ns;
    if (waited == NOT_COUNTED || away < FROZEN_NS || queued > away / 2)
        return;
    for (uint32_t i = 0; i < clp_table_count(); i++) {
        struct clp_record *r = clp_table_at(i);
        if (r && atomic_load(&r->state) == CLP_RECORD_LIVE)
            give_frozen(r, now_ns, away - CLP_MIN(queued, away));
    }
}

/* ---- the end of a thread ------------------------------------------------------------------- */

/* The thread has ended; its last clock is pub.seen_ns. */
static void thread_ended(struct clp_record *r, uint64_t now_ns)
{
    struct clp_wall_split s;
    if (!r->wall.begun)
        first_sight(r);
    uint64_t end = r->ended_at_ns ? r->ended_at_ns : now_ns;
    clp_wall_account_split(&r->wall.account, end, r->pub.seen_ns, 0, &s);
    uint64_t left = s.old_ns + s.new_ns;
    if (!wants_stacks(r))
        tell(r, word_for(r), 0, left, end);
    else if (r->wall.has_stack)
        tell(r, CLP_SPECIAL_NONE, 0, left, end);
    else if (r->sampled || end - CLP_MIN(end, r->wall.account.from_ns) > SHORT_LIFE_NS)
        tell(r, CLP_SPECIAL_THREAD_ENDED, 0, left, end);
    else if (left)
        W.sink.wait(W.sink.user, clp_threads_process(),
                    &(struct clp_feed_waiting){
                        .special = CLP_SPECIAL_SHORT_LIVED, .wait_ns = left, .time_ns = end});
    W.due_ns[clp_table_index(r)] = 0;
    clp_wall_shot_forget(r->pub.thread_id);
}

/* ---- wall.h -------------------------------------------------------------------------------- */

/* Nothing of before counts. */
static void begin_all(uint64_t now_ns)
{
    for (uint32_t i = 0; i < clp_table_count(); i++) {
        struct clp_record *r = clp_table_at(i);
        if (!r)
            continue;
        r->wall = (struct clp_wall_thread){
            .begun = true, .copy_bytes = CLP_WALL_COPY_MIN, .changed_ns = now_ns};
        clp_wall_account_begin(&r->wall.account, now_ns, r->pub.seen_ns);
    }
}

static void forget_stacks(uint64_t now_ns)
{
    for (uint32_t i = 0; i < clp_table_count(); i++) {
        struct clp_record *r = clp_table_at(i);
        if (!r)
            continue;
        r->wall.has_stack = false;
        r->wall.changed_ns = now_ns;
        W.due_ns[i] = 0;
    }
}

int clp_wall_start(uint64_t now_ns, uint32_t budget_ppm, bool keep_files,
                   const struct clp_wall_sink *sink)
{
    size_t bytes = clp_thread_table.capacity * sizeof(uint64_t);
    uint32_t before_ppm = W.budget_ppm;
    W.budget_ppm = budget_ppm ? budget_ppm : CLP_WALL_BUDGET_PPM;
    if (W.running) {
        forget_stacks(now_ns);
        if (W.budget_ppm != before_ppm) /* the next one may be far off, for the sake of another */
            draw_round(now_ns, W.tokens_ns > 0);
        return 0;
    }
    if (!W.due_ns && !(W.due_ns = clp_pages_alloc(bytes)))
        return -ENOMEM;
    if (clp_wall_shot_init(keep_files) < 0)
        return -ENOMEM;
    memset(W.due_ns, 0, clp_table_count() * sizeof(uint64_t));
    W.sink = *sink;
    W.random = now_ns | 1;
    W.tokens_ns = BURST_NS;
    W.refilled_ns = W.round_ns = now_ns;
    W.own_wait_ns = own_wait();
    W.own_read_ns = now_ns;
    W.mean_cost_ns = WAKING_NS;
    W.planned_ns = 0;
    draw_round(now_ns, true);
    begin_all(now_ns);
    clp_thread_table.ended = thread_ended;
    W.running = true;
    return 0;
}

void clp_wall_stop(void)
{
    if (!W.running)
        return;
    W.running = false;
    clp_thread_table.ended = NULL;
    clp_wall_shot_close();
}

/* One that comes within half a round's time of another is made with it. */
static uint64_t planned(uint64_t due_ns)
{
    return due_ns == UINT64_MAX ? due_ns : CLP_MAX(W.drawn_ns, due_ns - W.every_ns / 2);
}

uint64_t clp_wall_round(uint64_t now_ns, uint64_t pass)
{
    if (!W.running)
        return UINT64_MAX;
    W.pass = pass;
    look_for_frozen(now_ns);
    refill(now_ns);
    if (now_ns >= W.planned_ns)
        draw_round(now_ns, visit_due(now_ns, now_ns + W.every_ns / 2));
    W.planned_ns = planned(next_due(now_ns));
    W.round_ns = clp_clock_monotonic_ns();
    if (W.planned_ns == UINT64_MAX)
        return UINT64_MAX;
    return W.planned_ns > W.round_ns ? W.planned_ns - W.round_ns : 0;
}

void clp_wall_flush(uint64_t pass)
{
    uint32_t shots = 0;
    if (!W.running)
        return;
    W.pass = pass;
    for (uint32_t i = 0; i < clp_table_count(); i++) {
        struct clp_record *r = clp_table_at(i);
        uint64_t clock;
        if (!r || atomic_load(&r->state) != CLP_RECORD_LIVE ||
            clp_clock_thread_ns(r->pub.tid, &clock) < 0)
            continue;
        if (!r->wall.begun)
            first_sight(r);
        uint64_t now = clp_clock_monotonic_ns();
        bool known = r->wall.has_stack && clock == r->wall.clock_ns;
        int e = known || !wants_stacks(r) || shots++ >= FLUSH_SHOTS ? -ECANCELED : look_at(r);
        if (e < 0)
            tell_all(r, now, clock, e == -EBUSY);
    }
}

struct clp_wall_totals clp_wall_totals(void)
{
    return W.totals;
}

size_t clp_wall_bytes(void)
{
    return W.running ? clp_table_count() * sizeof(uint64_t) + CLP_WALL_COPY_MIN : 0;
}
