#include "sampler/inproc/event_owner.h"

#include "base/core/random.h"
#include "sampler/inproc/capture.h"
#include "sampler/inproc/clock.h"
#include "sampler/inproc/collect.h"
#include "sampler/inproc/image_files.h"
#include "sampler/inproc/loop.h"
#include "sampler/inproc/thread_table.h"
#include "sampler/inproc/wall.h"
#include "sampler/inproc/wall_shot.h"

#include <errno.h>
#include <string.h>

#define WATCHES 128u
#define PROBES 16u
/* New watches: a share of one core for all that they cost, which a measured mean stands for; so
 * many more at once. */
#define COST_PPM 5000u
#define COST_FIRST_NS 60000u /* two rounds of the loop, a shot, a walk */
#define COST_ROUNDS_NS 20000u
#define BURST 64u
#define LOOK_TOGETHER_NS 50000u

enum state { FREE, FILLING, OPEN, TOLD, ABANDONED };

struct look {
    uint16_t count; /* 0: nothing was seen */
    bool running;   /* the owner's next CPU sample is to stand for it */
    uint64_t frames[CLP_OWNER_FRAMES_MAX];
};

struct watch {
    _Atomic uint32_t state;
    _Atomic uint32_t uses; /* tells a number of before from one of now */
    _Atomic int32_t owner;
    _Atomic uint64_t owned_from_ns; /* what the owner did before is not why the waiter waits */
    int32_t waiter;
    uint64_t lock, since_ns;
    _Atomic uint64_t ended_ns;
    _Atomic uint64_t random;
    /* loop; all from the beginning of the wait */
    uint64_t part_ns;        /* where the part that is under way begins: 0, 1 ms, 2 ms, 4 ms... */
    uint64_t due_ns;         /* of its look; 0: to be chosen */
    bool looked;             /* in this part */
    struct look whole, part; /* of all parts before, and of this one */
    struct look sampled;     /* the owner's last CPU sample within the wait */
};

static struct {
    struct watch watches[WATCHES];
    _Atomic uint32_t open;
    _Atomic uint64_t earliest_ns; /* a watch may begin if this is no more than a burst away */
    _Atomic uint64_t every_ns;
    bool keep_files;
    uint64_t pass;
    uint64_t mean_cost_ns;
} W; /* all zeros at first: none of it is in the image */

/* A wait may have been forgotten meanwhile, and its place taken by another. */
static struct watch *watch_at(uint32_t number)
{
    struct watch *w = &W.watches[number % WATCHES];
    return number && atomic_load(&w->uses) == number / WATCHES ? w : NULL;
}

/* ---- callback ---- */

/* Generic cell rate algorithm. */
static bool is_allowed(uint64_t now_ns)
{
    uint64_t every = atomic_load_explicit(&W.every_ns, memory_order_relaxed);
    uint64_t at = atomic_load_explicit(&W.earliest_ns, memory_order_relaxed), next;
    do {
        if (at > now_ns + BURST * every)
            return false;
        next = CLP_MAX(at, now_ns) + every;
    } while (!atomic_compare_exchange_weak(&W.earliest_ns, &at, next));
    return true;
}

static struct watch *take_free(double random)
{
    uint32_t first = (uint32_t)(random * WATCHES);
    for (uint32_t i = 0; i < PROBES; i++) {
        struct watch *w = &W.watches[(first + i) % WATCHES];
        uint32_t was = FREE;
        if (atomic_load_explicit(&w->state, memory_order_relaxed) == FREE &&
            atomic_compare_exchange_strong(&w->state, &was, FILLING))
            return w;
    }
    return NULL;
}

uint32_t clp_event_owner_begin(const struct clp_event_here *h, uint64_t lock, uint64_t owner_tid)
{
    if (owner_tid == 0 || owner_tid > INT32_MAX || !is_allowed(h->time_ns))
        return 0;
    double random = clp_event_random(h->thread);
    struct watch *w = take_free(random);
    if (!w)
        return 0;
    if (atomic_load(&w->uses) == 0)
        atomic_store(&w->uses, 1); /* 0 is no number */
    w->lock = lock;
    w->since_ns = h->time_ns;
    w->waiter = atomic_load(&h->thread->tid);
    atomic_store(&w->owned_from_ns, h->time_ns);
    atomic_store(&w->owner, (int32_t)owner_tid);
    atomic_store(&w->ended_ns, 0);
    atomic_store(&w->random, h->thread->random | 1);
    w->part_ns = w->due_ns = 0;
    w->looked = false;
    w->whole.count = w->part.count = w->sampled.count = 0;
    w->whole.running = w->part.running = false;
    atomic_fetch_add(&W.open, 1);
    atomic_store(&w->state, OPEN);
    clp_loop_wake();
    return atomic_load(&w->uses) * WATCHES + (uint32_t)(w - W.watches);
}

void clp_event_owner_took(uint64_t lock, int32_t tid)
{
    if (!lock || atomic_load_explicit(&W.open, memory_order_relaxed) == 0)
        return;
    uint64_t now = clp_clock_monotonic_ns();
    for (uint32_t i = 0; i < WATCHES; i++) {
        struct watch *w = &W.watches[i];
        if (atomic_load_explicit(&w->state, memory_order_acquire) != OPEN || w->lock != lock ||
            w->waiter == tid)
            continue; /* its own wait, which is just ending, was for the one before */
        atomic_store(&w->owned_from_ns, now);
        atomic_store(&w->owner, tid);
    }
}

void clp_event_owner_end(uint32_t watch, uint64_t now_ns, bool told)
{
    struct watch *w = watch_at(watch);
    if (!w)
        return;
    atomic_store(&w->ended_ns, now_ns);
    atomic_store(&w->state, told ? TOLD : ABANDONED);
}

/* ---- random instants ---- */

/* Uniform in [0, 1). */
static double draw(struct watch *w)
{
    uint64_t state = atomic_load_explicit(&w->random, memory_order_relaxed);
    double drawn = clp_random_unit(&state);
    atomic_store_explicit(&w->random, state, memory_order_relaxed);
    return drawn;
}

/* The length of the part that begins at part_ns: as long as all before it. */
static uint64_t part_length(const struct watch *w)
{
    return w->part_ns ? w->part_ns : CLP_OWNER_WAIT_MIN_NS;
}

/* The part under way is over, `ns` from the beginning of the wait: its look takes the place of the
 * earlier one with its share of the whole. One that lies in a part that was cut short has been made
 * with the share of the part that there was, so that its own share is length / ns. */
static void merge(struct watch *w, uint64_t ns)
{
    bool any = w->part.count || w->part.running;
    if (any && (w->part_ns == 0 || draw(w) * (double)ns < (double)part_length(w)))
        w->whole = w->part;
    w->part.count = 0;
    w->part.running = false;
}

/* Goes on to the part that `ns` lies in. */
static void advance(struct watch *w, uint64_t ns)
{
    while (ns >= w->part_ns + part_length(w)) {
        uint64_t end = w->part_ns + part_length(w);
        merge(w, end);
        w->part_ns = end;
        w->due_ns = 0;
        w->looked = false;
    }
    if (!w->due_ns)
        w->due_ns = w->part_ns + 1 + (uint64_t)(draw(w) * (double)part_length(w));
}

/* ---- looks ---- */

/* Of its stack the application's part: managed frames. */
static void keep(struct look *l, const uint64_t *frames, uint32_t count)
{
    l->count = 0;
    l->running = false;
    for (uint32_t i = 0; i < count && l->count < CLP_OWNER_FRAMES_MAX; i++)
        if (clp_frame_kind(frames[i]) == CLP_FRAME_MANAGED)
            l->frames[l->count++] = frames[i];
}

/* What was seen counts only if the owner was it all the time, and the wait went on. */
static void look_at(struct watch *w)
{
    struct clp_wall_shot shot;
    struct clp_collect_stack stack = {0};
    int32_t tid = atomic_load(&w->owner);
    clp_lock(&clp_thread_table.lock);
    struct clp_record *r = clp_table_by_tid(tid);
    clp_unlock(&clp_thread_table.lock);
    w->looked = true;
    if (!r || clp_event_lock_waits(w->lock, tid) || clp_wall_shot_init(W.keep_files) < 0)
        return;
    int e = clp_wall_shoot(r, CLP_WALL_COPY_MAX, &shot);
    if (e == 0)
        clp_collect_stack(&shot.in, clp_table_slot(r), W.pass, &stack);
    if (atomic_load(&w->owner) != tid || atomic_load(&w->state) != OPEN ||
        clp_event_lock_waits(w->lock, tid))
        return;
    keep(&w->part, stack.frames, stack.count);
    w->part.running = e == -EBUSY || e == -EAGAIN;
}

static void account(uint64_t cost_ns, uint32_t looks)
{
    uint64_t each = cost_ns / looks + COST_ROUNDS_NS;
    W.mean_cost_ns = W.mean_cost_ns ? (15 * W.mean_cost_ns + each) / 16 : each;
    /* A wait has some two looks. */
    atomic_store(&W.every_ns, 2 * W.mean_cost_ns * 1000 / COST_PPM * 1000);
}

static void release(struct watch *w)
{
    atomic_fetch_sub(&W.open, 1);
    atomic_store(&w->uses, (atomic_load(&w->uses) + 1) % (UINT32_MAX / WATCHES) + 1);
    atomic_store(&w->state, FREE);
}

/* When the next look is due; UINT64_MAX: never. */
static uint64_t visit(struct watch *w, uint32_t *looks)
{
    uint64_t now = clp_clock_monotonic_ns();
    uint32_t state = atomic_load(&w->state);
    if (state == ABANDONED)
        release(w);
    if (state != OPEN)
        return UINT64_MAX;
    uint64_t ns = now > w->since_ns ? now - w->since_ns : 0;
    advance(w, ns);
    if (!w->looked && ns + LOOK_TOGETHER_NS >= w->due_ns) {
        look_at(w);
        ++*looks;
    }
    return w->since_ns + (w->looked ? w->part_ns + part_length(w) : w->due_ns);
}

uint64_t clp_event_owner_round(uint64_t pass)
{
    uint64_t next = UINT64_MAX;
    uint32_t looks = 0;
    if (atomic_load_explicit(&W.open, memory_order_acquire) == 0)
        return next;
    W.pass = pass;
    uint64_t began = clp_image_files_cost_ns();
    for (uint32_t i = 0; i < WATCHES; i++) {
        if (atomic_load_explicit(&W.watches[i].state, memory_order_acquire) == FREE)
            continue;
        uint64_t due_ns = visit(&W.watches[i], &looks);
        next = CLP_MIN(next, due_ns);
    }
    if (looks)
        account(clp_image_files_cost_ns() - began, looks);
    uint64_t now = clp_clock_monotonic_ns();
    return next == UINT64_MAX ? next : CLP_MAX(next, now + LOOK_TOGETHER_NS) - now;
}

void clp_event_owner_sampled(const struct clp_feed_sample *s)
{
    if (atomic_load_explicit(&W.open, memory_order_relaxed) == 0)
        return;
    for (uint32_t i = 0; i < WATCHES; i++) {
        struct watch *w = &W.watches[i];
        uint32_t state = atomic_load(&w->state);
        uint64_t ended = atomic_load(&w->ended_ns);
        if ((state != OPEN && state != TOLD) || atomic_load(&w->owner) != s->thread->tid ||
            s->time_ns < atomic_load(&w->owned_from_ns) || (state == TOLD && s->time_ns > ended))
            continue;
        keep(&w->sampled, s->frames, s->count);
        if (w->whole.running)
            keep(&w->whole, s->frames, s->count);
        if (w->part.running)
            keep(&w->part, s->frames, s->count);
    }
}

/* ---- what comes of it ---- */

/* What stands for the wait up to `ns`, without ending the watch. One that ran when it was looked
 * at and was not sampled since is what it was at the sample before. */
static const struct look *chosen(struct watch *w, uint64_t ns)
{
    bool seen = w->part.count || w->part.running;
    bool part = seen && (w->part_ns == 0 || draw(w) * (double)ns < (double)part_length(w));
    const struct look *l = part || !(w->whole.count || w->whole.running) ? &w->part : &w->whole;
    return l->count || !l->running ? l : &w->sampled;
}

void clp_event_owner_add(uint32_t watch, uint64_t until_ns, struct clp_event_member *m,
                         const struct clp_events_sink *sink)
{
    struct watch *w = watch_at(watch);
    if (!w || until_ns < w->since_ns + CLP_OWNER_WAIT_MIN_NS)
        return;
    uint64_t ns = until_ns - w->since_ns;
    advance(w, ns);
    const struct look *l = chosen(w, ns);
    uint64_t *frames = NULL;
    if (l->count)
        frames = clp_event_members_alloc((size_t)(m->count + l->count) * sizeof(*frames));
    if (!frames)
        return;
    memcpy(frames, m->frames, m->count * sizeof(*frames));
    memcpy(frames + m->count, l->frames, l->count * sizeof(*frames));
    m->frames = frames;
    m->count = (uint16_t)(m->count + l->count);
    m->other_count = l->count;
    sink->define(sink->user, m->thread, m->frames, m->count);
}

void clp_event_owner_release(uint32_t watch)
{
    struct watch *w = watch_at(watch);
    if (w)
        release(w);
}

void clp_event_owner_start(bool keep_files)
{
    W.keep_files = keep_files;
    if (!atomic_load(&W.every_ns))
        atomic_store(&W.every_ns, COST_FIRST_NS * 1000ull / COST_PPM * 1000);
}

void clp_event_owner_stop(void)
{
    for (uint32_t i = 0; i < WATCHES; i++)
        if (atomic_load(&W.watches[i].state) > FILLING)
            release(&W.watches[i]);
}
