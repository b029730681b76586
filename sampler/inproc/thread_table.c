#include "sampler/inproc/thread_table.h"

#include "base/core/arena.h"
#include "base/core/text.h"
#include "sampler/inproc/bounds.h"
#include "sampler/inproc/clock.h"
#include "sampler/inproc/rawcall.h"
#include "sampler/inproc/spans.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#define HASH_HEADS 4096u
#define NAMES 256u
/* A name whose thread never started must not go to the next Thread object at its address. */
#define NAME_LIFE_NS (30 * CLP_NSEC_PER_SEC)
#define HANDLER_WAIT_ROUNDS                                                                        \
    200 /* x 50 us; a handler takes a few us unless its thread is preempted */

struct clp_thread_table clp_thread_table;

/* Names that are not in a record yet: given before the thread started, or changed since the loop
 * last looked. A ring; the oldest goes when it is full, and its thread keeps the kernel's name. */
struct names {
    uint64_t clr_thread[NAMES]; /* 0 = free; apart, because each new thread searches them */
    uint64_t time_ns[NAMES];
    char text[NAMES][sizeof(((struct clp_thread *)NULL)->name)]; /* empty: taken away */
    uint32_t next;
};

static struct names *names;

int clp_table_init(uint32_t capacity)
{
    struct clp_thread_table *t = &clp_thread_table;
    size_t records = capacity * sizeof(struct clp_record);
    size_t heads = HASH_HEADS * sizeof(uint32_t);
    struct clp_record *r = clp_pages_alloc(records);
    uint32_t *hash = clp_pages_alloc(2 * heads);
    struct names *n = clp_pages_alloc(sizeof(*n));
    if (!r || !hash || !n) {
        clp_pages_free(r, records);
        clp_pages_free(hash, 2 * heads);
        clp_pages_free(n, sizeof(*n));
        return -ENOMEM;
    }
    memset(hash, 0xff, 2 * heads);
    t->by_tid = hash;
    t->by_clr = hash + HASH_HEADS;
    t->free_head = t->dirty_head = CLP_RECORD_NONE;
    t->next_thread_id = 2; /* 1 stands for the process */
    t->capacity = capacity;
    t->fixed_bytes = 2 * heads + sizeof(*n);
    names = n;
    t->records = r;
    return 0;
}

static uint32_t hash_of(uint64_t key)
{
    return (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 40) % HASH_HEADS;
}

uint32_t clp_table_count(void)
{
    return atomic_load(&clp_thread_table.high_water);
}

struct clp_record *clp_table_at(uint32_t index)
{
    struct clp_record *r = &clp_thread_table.records[index];
    return atomic_load_explicit(&r->state, memory_order_acquire) == CLP_RECORD_FREE ? NULL : r;
}

uint32_t clp_table_index(const struct clp_record *r)
{
    return (uint32_t)(r - clp_thread_table.records);
}

struct clp_thread_slot *clp_table_slot(const struct clp_record *r)
{
    return clp_capture_slot(clp_table_index(r));
}

struct clp_record *clp_table_by_tid(int32_t tid)
{
    struct clp_thread_table *t = &clp_thread_table;
    uint32_t i = t->by_tid[hash_of((uint64_t)tid)];
    while (i != CLP_RECORD_NONE && t->records[i].key_tid != tid)
        i = t->records[i].next_by_tid;
    return i == CLP_RECORD_NONE ? NULL : &t->records[i];
}

static struct clp_record *by_clr(uint64_t clr_thread)
{
    struct clp_thread_table *t = &clp_thread_table;
    uint32_t i = t->by_clr[hash_of(clr_thread)];
    while (i != CLP_RECORD_NONE && t->records[i].key_clr != clr_thread)
        i = t->records[i].next_by_clr;
    return i == CLP_RECORD_NONE ? NULL : &t->records[i];
}

static void link_tid(struct clp_record *r, int32_t tid)
{
    uint32_t *head = &clp_thread_table.by_tid[hash_of((uint64_t)tid)];
    r->key_tid = tid;
    r->next_by_tid = *head;
    *head = clp_table_index(r);
}

static void link_clr(struct clp_record *r, uint64_t clr_thread)
{
    uint32_t *head = &clp_thread_table.by_clr[hash_of(clr_thread)];
    r->key_clr = clr_thread;
    r->next_by_clr = *head;
    *head = clp_table_index(r);
}

static void unlink_clr(struct clp_record *r)
{
    if (!r->key_clr)
        return;
    uint32_t *at = &clp_thread_table.by_clr[hash_of(r->key_clr)];
    while (*at != clp_table_index(r))
        at = &clp_thread_table.records[*at].next_by_clr;
    *at = r->next_by_clr;
    r->key_clr = 0;
}

void clp_table_unlink(struct clp_record *r)
{
    unlink_clr(r);
    if (!r->key_tid)
        return;
    uint32_t *at = &clp_thread_table.by_tid[hash_of((uint64_t)r->key_tid)];
    while (*at != clp_table_index(r))
        at = &clp_thread_table.records[*at].next_by_tid;
    *at = r->next_by_tid;
    r->key_tid = 0;
}

static struct clp_record *take_free(void)
{
    struct clp_thread_table *t = &clp_thread_table;
    uint32_t i = t->free_head, high = atomic_load(&t->high_water);
    if (i != CLP_RECORD_NONE) {
        t->free_head = t->records[i].next_free;
    } else if (high < t->capacity) {
        i = high;
        atomic_store(&t->high_water, high + 1);
    } else {
        atomic_fetch_add(&t->refused, 1);
        return NULL;
    }
    return &t->records[i];
}

static void open_slot(struct clp_record *r, int32_t tid, uint64_t clr_thread)
{
    struct clp_thread_slot *s = clp_table_slot(r);
    s->tid = tid;
    s->thread = &r->pub;
    s->random = (clp_clock_monotonic_ns() ^ (uint64_t)tid << 40) | 1; /* xorshift: never 0 */
    s->ramp_ns = 0;
    atomic_store(&s->stack_low, 0);
    atomic_store(&s->stack_high, 0);
    atomic_store(&s->thread_object, clr_thread);
    atomic_store(&s->span, clp_spans_cell_of(tid));
    atomic_store(&s->timer_id, -1);
    atomic_store(&s->lost, 0);
    atomic_fetch_add(&s->generation, 1); /* odd */
}

static void close_slot(struct clp_record *r)
{
    struct clp_thread_slot *s = clp_table_slot(r);
    clp_record_take_timer(r, 0);
    atomic_fetch_add(&s->generation, 1); /* even: a late signal finds nobody */
    atomic_store(&s->thread_object, 0);
    atomic_store(&s->span, NULL);
}

struct clp_record *clp_table_add(int32_t tid, uint64_t clr_thread, enum clp_thread_kind kind)
{
    struct clp_thread_table *t = &clp_thread_table;
    struct clp_record *r = take_free();
    if (!r)
        return NULL;
    /* Not the state, which the loop may be reading, nor the place in the list of inboxes, where a
     * record that was freed may still be. */
    memset(&r->pub, 0, sizeof(*r) - offsetof(struct clp_record, pub));
    r->next_by_tid = r->next_by_clr = r->next_free = CLP_RECORD_NONE;
    r->fresh = true;
    r->pub = (struct clp_thread){.thread_id = t->next_thread_id++,
                                 .slot = clp_table_index(r),
                                 .tid = tid,
                                 .kind = kind,
                                 .clr_thread = clr_thread,
                                 .name_version = 1,
                                 .alive = true};
    r->made_at_ns = r->pub.moved_at_ns = clp_clock_monotonic_ns();
    r->wall.account.from_ns = r->made_at_ns;
    link_tid(r, tid);
    if (clr_thread)
        link_clr(r, clr_thread);
    open_slot(r, tid, clr_thread);
    atomic_fetch_add(&t->used, 1);
    return r;
}

void clp_table_publish(struct clp_record *r)
{
    atomic_store_explicit(&r->state, CLP_RECORD_LIVE, memory_order_release);
}

void clp_table_free(struct clp_record *r)
{
    struct clp_thread_table *t = &clp_thread_table;
    clp_table_unlink(r);
    close_slot(r);
    r->inbox = 0;
    atomic_store(&r->state, CLP_RECORD_FREE);
    r->next_free = t->free_head;
    t->free_head = clp_table_index(r);
    atomic_fetch_sub(&t->used, 1);
}

static void leave_word(struct clp_record *r, uint32_t bits)
{
    r->inbox |= bits;
    if (r->queued)
        return;
    r->queued = true;
    r->next_dirty = clp_thread_table.dirty_head;
    clp_thread_table.dirty_head = clp_table_index(r);
}

/* ---- names ---- */

static int find_name(uint64_t clr_thread)
{
    for (int i = 0; i < (int)NAMES; i++)
        if (names->clr_thread[i] == clr_thread)
            return i;
    return -1;
}

static void drop_name(uint64_t clr_thread)
{
    int n = find_name(clr_thread);
    if (n >= 0)
        names->clr_thread[n] = 0;
}

/* A new thread's name, unless it was meant for one that never started. */
static int find_young_name(uint64_t clr_thread)
{
    int n = find_name(clr_thread);
    bool old = n >= 0 && clp_clock_monotonic_ns() - names->time_ns[n] > NAME_LIFE_NS;
    return old ? -1 : n;
}

/* Moves a waiting name into the record. */
static void take_name(struct clp_record *r, int n)
{
    if (n < 0)
        return;
    names->clr_thread[n] = 0;
    r->managed_name = names->text[n][0];
    if (r->managed_name) {
        memcpy(r->pub.name, names->text[n], sizeof(r->pub.name));
        r->pub.name_version++;
    } else {
        r->fresh = true; /* the kernel's name is read again */
    }
}

static int store_name(uint64_t clr_thread, const char *text, size_t len)
{
    int n = find_name(clr_thread);
    if (n < 0)
        n = (int)(names->next++ % NAMES);
    names->clr_thread[n] = clr_thread;
    names->time_ns[n] = clp_clock_monotonic_ns();
    memcpy(names->text[n], text, len + 1);
    return n;
}

void clp_threads_named(uint64_t clr_thread, const uint16_t *utf16, size_t units)
{
    struct clp_thread_table *t = &clp_thread_table;
    char text[sizeof(names->text[0])];
    struct clp_text name = clp_text_in(text, sizeof(text));
    if (!t->records || !clr_thread || clp_capture_forked())
        return;
    if (utf16)
        clp_text_utf16(&name, utf16, units);
    clp_lock(&t->lock);
    int n = store_name(clr_thread, text, name.len);
    struct clp_record *r = by_clr(clr_thread);
    if (r && t->sampling)
        leave_word(r, CLP_INBOX_NAMED);
    else if (r)
        take_name(r, n); /* the loop stays away */
    clp_unlock(&t->lock);
}

/* ---- callbacks ---- */

static int32_t own_tid(void)
{
    return (int32_t)clp_raw3(SYS_gettid, 0, 0, 0);
}

/* What a thread knows of itself, read before the lock is taken. */
struct self {
    bool is_self;
    uint64_t clock_ns;
    uint64_t low, high; /* 0: not known */
};

static struct self look_at_self(int32_t tid)
{
    struct self s = {.is_self = own_tid() == tid};
    if (!s.is_self)
        return s;
    s.clock_ns = clp_clock_self_ns();
    if (!clp_bounds_own(&s.low, &s.high))
        s.low = s.high = 0;
    return s;
}

/* Is the record of this tid that of a thread which has ended, unseen until now? A Thread object of
 * another thread, or a clock that ran backwards, says so. */
static bool is_stale(const struct clp_record *r, uint64_t clr_thread, const struct self *self)
{
    if (!self->is_self)
        return false;
    if (r->key_clr && r->key_clr != clr_thread)
        return true;
    /* Before the clock is read: the loop raises it. */
    uint64_t read = atomic_load(&r->clock_read_ns), seen = CLP_MAX(read, r->final_ns);
    return clp_clock_self_ns() < seen;
}

static void set_bounds(struct clp_record *r, uint64_t low, uint64_t high)
{
    struct clp_thread_slot *s = clp_table_slot(r);
    atomic_store(&s->stack_low, low);
    atomic_store_explicit(&s->stack_high, high, memory_order_release);
}

static void make_managed(struct clp_record *r, uint64_t clr_thread)
{
    if (r->key_clr == clr_thread)
        return;
    unlink_clr(r);
    link_clr(r, clr_thread);
    atomic_store(&clp_table_slot(r)->thread_object, clr_thread);
    leave_word(r, CLP_INBOX_MANAGED | (find_name(clr_thread) >= 0 ? CLP_INBOX_NAMED : 0));
}

static void add_managed(int32_t tid, uint64_t clr_thread, const struct self *self)
{
    struct clp_record *r = clp_table_add(tid, clr_thread, CLP_THREAD_MANAGED);
    if (!r)
        return;
    take_name(r, find_young_name(clr_thread));
    if (!self->is_self) {
        /* Born before we looked: what it has used so far is not ours to tell. */
        if (clp_clock_thread_ns(tid, &r->pub.accounted_ns) < 0)
            r->pub.accounted_ns = 0;
        r->pub.seen_ns = r->wall.account.cpu_from_ns = r->pub.accounted_ns;
    }
    r->timed_from_ns = self->clock_ns;
    r->wall.account.from_ns -= self->clock_ns; /* it has lived at least as long as it ran */
    r->rearmed_ns = r->counted_at_ns = r->made_at_ns;
    clp_table_publish(r); /* from here on it is the loop's; its captures must find it */
    if (self->is_self && clp_thread_table.sampling && clp_thread_table.interval_ns)
        clp_table_arm_new(r);
}

void clp_threads_assigned(uint64_t clr_thread, int32_t tid)
{
    struct clp_thread_table *t = &clp_thread_table;
    if (!t->records || !clr_thread || tid <= 0 || clp_capture_forked())
        return;
    struct self self = look_at_self(tid);
    clp_lock(&t->lock);
    struct clp_record *r = clp_table_by_tid(tid), *other = by_clr(clr_thread);
    if (other && other != r)
        unlink_clr(other); /* the Thread object went to another thread of the system */
    if (r && is_stale(r, clr_thread, &self)) {
        clp_table_unlink(r);
        leave_word(r, CLP_INBOX_REPLACED);
        r = NULL;
    }
    if (r)
        make_managed(r, clr_thread);
    else
        add_managed(tid, clr_thread, &self);
    r = clp_table_by_tid(tid);
    if (r && self.high)
        set_bounds(r, self.low, self.high);
    clp_unlock(&t->lock);
}

/* The runtime frees the Thread object after the callback. On the thread itself no handler can be
 * reading it; elsewhere one may just be, for a few microseconds. */
static void wait_for_handler(const struct clp_thread_slot *slot)
{
    const struct timespec pause = {0, 50000};
    for (int i = 0; i < HANDLER_WAIT_ROUNDS && atomic_load(&slot->in_handler); i++)
        (void)clp_raw3(SYS_nanosleep, (long)&pause, 0, 0);
}

void clp_threads_destroyed(uint64_t clr_thread)
{
    struct clp_thread_table *t = &clp_thread_table;
    const struct clp_thread_slot *reading = NULL;
    if (!t->records || !clr_thread || clp_capture_forked())
        return;
    int32_t tid = own_tid();
    uint64_t clock_ns = clp_clock_self_ns(), now_ns = clp_clock_monotonic_ns();
    clp_lock(&t->lock);
    drop_name(clr_thread);
    struct clp_record *r = by_clr(clr_thread);
    if (r) {
        bool self = r->key_tid == tid;
        atomic_store(&clp_table_slot(r)->thread_object, 0);
        reading = self ? NULL : clp_table_slot(r);
        r->final_ns = self ? clock_ns : 0;
        r->ended_at_ns = self ? now_ns : 0;
        unlink_clr(r);
        if (t->sampling)
            leave_word(r, CLP_INBOX_DESTROYED);
        else
            clp_table_free(r);
    }
    clp_unlock(&t->lock);
    if (reading)
        wait_for_handler(reading);
}

/* ---- spans ---- */

void clp_threads_span(int32_t tid, const struct clp_span_cell *cell)
{
    struct clp_thread_table *t = &clp_thread_table;
    if (!t->records || clp_capture_forked())
        return;
    clp_lock(&t->lock);
    struct clp_record *r = clp_table_by_tid(tid);
    if (r)
        atomic_store(&clp_table_slot(r)->span, cell);
    clp_unlock(&t->lock);
}

/* ---- loop ---- */

static void read_inbox(struct clp_record *r)
{
    uint32_t bits = r->inbox;
    r->inbox = 0;
    r->queued = false;
    if (atomic_load(&r->state) == CLP_RECORD_FREE)
        return;
    if (bits & CLP_INBOX_DESTROYED)
        r->pub.clr_thread = 0;
    if (bits & CLP_INBOX_REPLACED)
        r->replaced = true;
    if (bits & CLP_INBOX_MANAGED && r->key_clr) {
        r->pub.clr_thread = r->key_clr;
        r->pub.kind = CLP_THREAD_MANAGED;
        r->unsignalled = false;
        r->pub.name_version++;
    }
    if (bits & CLP_INBOX_NAMED && r->key_clr)
        take_name(r, find_name(r->key_clr));
}

void clp_table_read_inboxes(void)
{
    struct clp_thread_table *t = &clp_thread_table;
    clp_lock(&t->lock);
    while (t->dirty_head != CLP_RECORD_NONE) {
        struct clp_record *r = &t->records[t->dirty_head];
        t->dirty_head = r->next_dirty;
        read_inbox(r);
    }
    clp_unlock(&t->lock);
}
