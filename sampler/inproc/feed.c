#include "sampler/inproc/feed.h"

#include "base/core/arena.h"
#include "sampler/inproc/bodies.h"
#include "sampler/inproc/images.h"
#include "sampler/inproc/spans.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* Threads with a slot have the entry of that number; those without share the rest by their number
 * (two that meet there only cost a definition more). */
#define SLOT_ENTRIES CLP_CAPTURE_THREADS_MAX
#define OTHER_ENTRIES 256u
#define ENTRIES (SLOT_ENTRIES + OTHER_ENTRIES)

/* A thread's time of one kind. */
struct rest {
    bool has_stack;      /* the ring holds a sample of it with a stack */
    uint64_t waiting_ns; /* found the ring full */
    uint64_t waiting_at_ns;
    enum clp_special waiting_as; /* the word for it where the ring has no stack of the thread */
};

struct clp_feed_thread {
    uint32_t thread_id; /* 0: entry not in use */
    uint32_t name_version;
    int32_t tid;
    uint32_t kind;
    bool defined;
    struct rest rest[CLP_FEED_KINDS];
    struct clp_span span; /* that the ring says the thread is in; span_id 0 none */
};

/* What is told of events without a stack: their type, not whose they were. */
static const struct {
    uint8_t texts; /* so many of the first ones */
    bool number;
} told_of[CLP_SAMPLE_KIND_COUNT] = {
    [CLP_SAMPLE_EXCEPTION] = {.texts = 1},
    [CLP_SAMPLE_ALLOC] = {.texts = 2},
    [CLP_SAMPLE_LIVE] = {.texts = 2, .number = true},
    [CLP_SAMPLE_GC] = {.texts = 2, .number = true},
};
#define UNSENT_MAX 512u
#define UNSENT_TEXT_BYTES 512u /* both; longer ones have no place */

struct clp_feed_unsent {
    uint16_t kind, text_len[CLP_EVENT_TEXTS];
    uint64_t number;
    double value, value2;
    char text[UNSENT_TEXT_BYTES];
};

static unsigned index_of(enum clp_sample_kind kind)
{
    static_assert(CLP_SAMPLE_CPU == 1 && CLP_SAMPLE_WALL == CLP_FEED_KINDS, "kinds that wait");
    return (unsigned)kind - 1;
}

int clp_feed_open(struct clp_feed *f, void *mapping, size_t mapped_bytes,
                  const struct clp_feed_totals *now, uint64_t from_ns)
{
    struct clp_feed n = {.base = *now};
    int r = clp_ring_open(&n.ring, mapping, mapped_bytes);
    if (r < 0)
        return r;
    n.threads = clp_pages_alloc(ENTRIES * sizeof(struct clp_feed_thread));
    if (!n.threads)
        return -ENOMEM;
    atomic_store_explicit(&n.ring.header->opened_ns, from_ns, memory_order_relaxed);
    *f = n;
    return 0;
}

void clp_feed_close(struct clp_feed *f)
{
    clp_pages_free(f->threads, ENTRIES * sizeof(struct clp_feed_thread));
    clp_pages_free(f->unsent, UNSENT_MAX * sizeof(struct clp_feed_unsent));
    clp_idset_done(&f->images);
    clp_idset_done(&f->methods);
    clp_idset_done(&f->bodies);
    clp_idset_done(&f->endpoints);
    clp_idset_done(&f->gone_images);
    clp_idset_done(&f->gone_methods);
    memset(f, 0, sizeof(*f));
}

size_t clp_feed_bytes(const struct clp_feed *f)
{
    return (f->unsent ? UNSENT_MAX * sizeof(struct clp_feed_unsent) : 0) +
           f->slot_high * sizeof(struct clp_feed_thread) + clp_idset_bytes(&f->images) +
           clp_idset_bytes(&f->methods) + clp_idset_bytes(&f->bodies) +
           clp_idset_bytes(&f->endpoints) + clp_idset_bytes(&f->gone_images) +
           clp_idset_bytes(&f->gone_methods);
}

void clp_feed_count(struct clp_feed *f, enum clp_counter counter)
{
    f->counters[counter]++;
}

/* ---- definitions ---- */

/* Each answers 0 when the reader knows it now, -ENOSPC when the ring is full, or -ENOENT when the
 * library has nothing to say: then the user of the definition goes without. */

static union clp_rec_any scratch;

static int define_image(struct clp_feed *f, uint32_t id)
{
    if (id == 0 || clp_idset_has(&f->images, id))
        return id == 0 ? -ENOENT : 0;
    int n = clp_images_record(id, &scratch, sizeof(scratch));
    if (n == -ENOENT)
        n = clp_bodies_image_record(id, &scratch, sizeof(scratch));
    if (n < 0)
        return -ENOENT;
    int r = clp_ring_write(&f->ring, &scratch.rec);
    if (r == 0)
        clp_idset_add(&f->images, id);
    return r;
}

static int define_method(struct clp_feed *f, uint32_t id)
{
    if (clp_idset_has(&f->methods, id))
        return 0;
    if (clp_bodies_method_record(id, &scratch, sizeof(scratch)) < 0)
        return -ENOENT;
    uint32_t image_id = scratch.method.image_id;
    if (image_id && !clp_idset_has(&f->images, image_id)) {
        if (define_image(f, image_id) == -ENOSPC)
            return -ENOSPC;
        if (clp_bodies_method_record(id, &scratch, sizeof(scratch)) < 0) /* scratch was used */
            return -ENOENT;
    }
    int r = clp_ring_write(&f->ring, &scratch.rec);
    if (r == 0)
        clp_idset_add(&f->methods, id);
    return r;
}

static int define_body(struct clp_feed *f, uint32_t id)
{
    struct clp_rec_body rec;
    if (clp_idset_has(&f->bodies, id))
        return 0;
    if (clp_bodies_body_record(id, &rec) < 0)
        return -ENOENT;
    int r = define_method(f, rec.method_id);
    if (r < 0)
        return r;
    r = clp_ring_write(&f->ring, &rec.rec);
    if (r == 0)
        clp_idset_add(&f->bodies, id);
    return r;
}

static int define_frame(struct clp_feed *f, uint64_t frame)
{
    switch (clp_frame_kind(frame)) {
    case CLP_FRAME_MANAGED:
        return define_body(f, clp_frame_id(frame));
    case CLP_FRAME_NATIVE:
        return define_image(f, clp_frame_id(frame));
    default:
        return 0;
    }
}

/* The frames as this reader may see them: one whose definition is gone becomes unknown. */
static int define_frames(struct clp_feed *f, const struct clp_feed_sample *s, uint64_t *ret_frames)
{
    for (uint16_t i = 0; i < s->count; i++) {
        int r = define_frame(f, s->frames[i]);
        if (r == -ENOSPC)
            return r;
        ret_frames[i] = r == 0 ? s->frames[i] : clp_frame_make(CLP_FRAME_UNKNOWN, 0, 0);
    }
    return 0;
}

/* ---- ends of definitions ---- */

static bool write_gone(struct clp_feed *f, enum clp_rec_type what, uint32_t id)
{
    struct clp_rec_gone rec = {
        .rec = {.size = sizeof(rec), .type = CLP_REC_GONE}, .what = (uint16_t)what, .id = id};
    return clp_ring_write(&f->ring, &rec.rec) == 0;
}

/* Native images stay. */
static bool is_gone(enum clp_rec_type what, uint32_t id)
{
    return clp_bodies_gone(what, id) &&
           (what != CLP_REC_IMAGE || clp_images_record(id, &scratch, sizeof(scratch)) == -ENOENT);
}

static bool tell_gone(struct clp_feed *f, enum clp_rec_type what, const struct clp_idset *defined,
                      struct clp_idset *told)
{
    for (uint32_t id = 0; (id = clp_idset_next(defined, told, id)); id++) {
        if (!is_gone(what, id))
            continue;
        if (!write_gone(f, what, id))
            return false;
        clp_idset_add(told, id);
    }
    return true;
}

void clp_feed_tell_gone(struct clp_feed *f)
{
    (void)(tell_gone(f, CLP_REC_METHOD, &f->methods, &f->gone_methods) &&
           tell_gone(f, CLP_REC_IMAGE, &f->images, &f->gone_images));
}

/* ---- threads ---- */

static bool write_thread(struct clp_feed *f, struct clp_feed_thread *e, const char *name)
{
    size_t n = strlen(name);
    uint32_t size = (uint32_t)CLP_ALIGN_UP(sizeof(struct clp_rec_thread) + n, 8);
    struct clp_rec_thread *rec = clp_ring_reserve(&f->ring, size);
    if (!rec)
        return false;
    memset(rec, 0, size);
    *rec = (struct clp_rec_thread){.rec = {.size = size, .type = CLP_REC_THREAD},
                                   .thread_id = e->thread_id,
                                   .tid = e->tid,
                                   .kind = e->kind,
                                   .name_len = (uint16_t)n};
    memcpy(rec + 1, name, n);
    clp_ring_commit(&f->ring);
    e->defined = true;
    return true;
}

static bool define_thread(struct clp_feed *f, struct clp_feed_thread *e, const struct clp_thread *t)
{
    if (e->defined && e->name_version == t->name_version && e->kind == t->kind)
        return true;
    e->kind = t->kind;
    if (!write_thread(f, e, t->name))
        return false;
    e->name_version = t->name_version;
    return true;
}

/* ---- spans ---- */

static int define_endpoint(struct clp_feed *f, uint32_t id)
{
    char name[CLP_SPAN_NAME_MAX_BYTES + 1];
    if (id <= CLP_ENDPOINT_OTHER || clp_idset_has(&f->endpoints, id))
        return 0;
    if (clp_spans_endpoint_name(id, name) < 0)
        return -ENOENT;
    size_t n = strlen(name);
    uint32_t size = (uint32_t)CLP_ALIGN_UP(sizeof(struct clp_rec_endpoint) + n, 8);
    struct clp_rec_endpoint *rec = n ? clp_ring_reserve(&f->ring, size) : NULL;
    if (!rec)
        return n ? -ENOSPC : -ENOENT;
    memset(rec, 0, size);
    *rec = (struct clp_rec_endpoint){
        .rec = {.size = size, .type = CLP_REC_ENDPOINT}, .endpoint = id, .name_len = (uint16_t)n};
    memcpy(rec + 1, name, n);
    clp_ring_commit(&f->ring);
    clp_idset_add(&f->endpoints, id);
    return 0;
}

static bool in_span(const struct clp_span *span)
{
    return span && span->span_id && (span->trace_high | span->trace_low);
}

/* The ring says which span the thread is in; false when it is full. */
static bool define_span(struct clp_feed *f, struct clp_feed_thread *e, const struct clp_span *span)
{
    if (!in_span(span) || memcmp(&e->span, span, sizeof(e->span)) == 0)
        return true;
    int r = define_endpoint(f, span->endpoint);
    struct clp_rec_span *rec =
        r == -ENOSPC ? NULL : clp_ring_reserve(&f->ring, sizeof(struct clp_rec_span));
    if (!rec)
        return false;
    *rec = (struct clp_rec_span){
        .rec = {.size = sizeof(*rec), .type = CLP_REC_SPAN},
        .thread_id = e->thread_id,
        .endpoint = r == 0 ? span->endpoint : 0,
        .trace_high = span->trace_high,
        .trace_low = span->trace_low,
        .span_id = span->span_id,
        .local_root_span_id = span->local_root_span_id,
    };
    clp_ring_commit(&f->ring);
    e->span = *span;
    f->counters[CLP_CTR_SPANS]++;
    return true;
}

bool clp_feed_root(struct clp_feed *f, uint64_t local_root_span_id, uint32_t endpoint,
                   uint32_t ended)
{
    struct clp_rec_root *rec = NULL;
    int r = define_endpoint(f, endpoint);
    if (r == -ENOENT)
        return true;
    if (r == 0)
        rec = clp_ring_reserve(&f->ring, sizeof(*rec));
    if (!rec) {
        f->counters[CLP_CTR_DROP_RING_FULL]++;
        return false;
    }
    *rec = (struct clp_rec_root){.rec = {.size = sizeof(*rec), .type = CLP_REC_ROOT},
                                 .local_root_span_id = local_root_span_id,
                                 .endpoint = endpoint,
                                 .ended = ended};
    clp_ring_commit(&f->ring);
    return true;
}

/* ---- samples ---- */

/* Which control total a special's time belongs to. */
static enum clp_counter total_of(enum clp_special special)
{
    switch (special) {
    case CLP_SPECIAL_NONE:
        return CLP_CTR_SAMPLED_CPU_NS;
    case CLP_SPECIAL_NATIVE_THREAD:
        return CLP_CTR_NATIVE_CPU_NS;
    case CLP_SPECIAL_SHORT_LIVED:
        return CLP_CTR_SHORT_LIVED_CPU_NS;
    case CLP_SPECIAL_SIGNALS_BLOCKED:
        return CLP_CTR_SIGNALS_BLOCKED_CPU_NS;
    default:
        return CLP_CTR_UNSAMPLED_CPU_NS;
    }
}

static enum clp_counter wall_total_of(enum clp_special special)
{
    return special == CLP_SPECIAL_UNKNOWN_WAIT ? CLP_CTR_WALL_UNKNOWN_NS : CLP_CTR_WALL_WAIT_NS;
}

struct out {
    enum clp_sample_kind kind;
    uint64_t value_ns, time_ns, value2;
    uint16_t flags, count;
    const uint64_t *frames;
    enum clp_counter total;
};

/* Writes one sample with all that waits for its thread; false when the ring is full. */
static bool write_sample(struct clp_feed *f, struct clp_feed_thread *e, const struct out *o)
{
    uint32_t size = (uint32_t)sizeof(struct clp_rec_sample) + 8u * o->count;
    struct clp_rec_sample *rec = clp_ring_reserve(&f->ring, size);
    if (!rec)
        return false;
    struct rest *rest = &e->rest[index_of(o->kind)];
    uint64_t value = o->value_ns + rest->waiting_ns;
    *rec = (struct clp_rec_sample){
        .rec = {.size = size, .type = CLP_REC_SAMPLE, .count = o->count},
        .time_ns = o->time_ns,
        .value = (int64_t)CLP_MIN(value, (uint64_t)CLP_WIRE_VALUE_MAX),
        .value2 = (int64_t)o->value2,
        .thread_id = e->thread_id,
        .kind = (uint16_t)o->kind,
        .flags = o->flags,
    };
    if (o->count)
        memcpy(rec + 1, o->frames, o->count * sizeof(uint64_t));
    clp_ring_commit(&f->ring);
    f->counters[o->total] += value;
    f->counters[CLP_CTR_SAMPLES]++;
    f->waiting_ns[index_of(o->kind)] -= rest->waiting_ns;
    rest->waiting_ns = 0;
    if (o->count && !(o->flags & CLP_SAMPLE_NO_STACK))
        rest->has_stack = true;
    return true;
}

/* The value goes to the last stack of the thread, or, where the ring has none, under a word. */
static bool write_rest(struct clp_feed *f, struct clp_feed_thread *e, enum clp_sample_kind kind,
                       enum clp_special word, uint64_t value_ns, uint64_t time_ns)
{
    bool cpu = kind == CLP_SAMPLE_CPU;
    enum clp_special fallback = cpu ? CLP_SPECIAL_UNSAMPLED : CLP_SPECIAL_UNKNOWN_WAIT;
    uint64_t frame = clp_frame_make(CLP_FRAME_SPECIAL, word ? word : fallback, 0);
    struct out o = {.kind = kind,
                    .value_ns = value_ns,
                    .time_ns = time_ns,
                    .total = cpu ? CLP_CTR_SAMPLED_CPU_NS : CLP_CTR_WALL_WAIT_NS};
    if (!e->rest[index_of(kind)].has_stack) {
        o.flags = CLP_SAMPLE_NO_STACK;
        o.count = 1;
        o.frames = &frame;
        o.total = cpu ? total_of(word ? word : fallback) : wall_total_of(word ? word : fallback);
    }
    return write_sample(f, e, &o);
}

/* Writes what waits for a thread, also for one that is gone. */
static bool settle(struct clp_feed *f, struct clp_feed_thread *e)
{
    for (unsigned i = 0; i < CLP_FEED_KINDS; i++) {
        const struct rest *r = &e->rest[i];
        if (r->waiting_ns == 0)
            continue;
        if (!e->defined && !write_thread(f, e, ""))
            return false;
        if (!write_rest(f, e, (enum clp_sample_kind)(i + 1), r->waiting_as, 0, r->waiting_at_ns))
            return false;
    }
    return true;
}

static void wait_for_room(struct clp_feed *f, struct clp_feed_thread *e, enum clp_sample_kind kind,
                          enum clp_special word, uint64_t value_ns, uint64_t time_ns)
{
    struct rest *r = &e->rest[index_of(kind)];
    r->waiting_as = word;
    r->waiting_ns += value_ns;
    r->waiting_at_ns = time_ns;
    f->waiting_ns[index_of(kind)] += value_ns;
    f->counters[CLP_CTR_DROP_RING_FULL]++;
}

static struct clp_feed_thread *entry_of(struct clp_feed *f, const struct clp_thread *t)
{
    uint32_t at = t->slot < SLOT_ENTRIES ? t->slot : SLOT_ENTRIES + t->thread_id % OTHER_ENTRIES;
    struct clp_feed_thread *e = &f->threads[at];
    if (e->thread_id == t->thread_id)
        return e;
    struct clp_feed_thread n = {.thread_id = t->thread_id, .tid = t->tid, .kind = t->kind};
    if (e->thread_id && !settle(f, e)) {
        /* The thread that had this entry ended while the ring is full: its time must not be lost,
         * and only another thread can carry it. */
        for (unsigned i = 0; i < CLP_FEED_KINDS; i++) {
            n.rest[i].waiting_ns = e->rest[i].waiting_ns;
            n.rest[i].waiting_at_ns = e->rest[i].waiting_at_ns;
        }
    }
    if (e->defined)
        (void)write_gone(f, CLP_REC_THREAD, e->thread_id);
    *e = n;
    if (at < SLOT_ENTRIES)
        f->slot_high = CLP_MAX(f->slot_high, at + 1);
    return e;
}

bool clp_feed_stack(struct clp_feed *f, const struct clp_feed_sample *s)
{
    static uint64_t frames[CLP_WIRE_FRAMES_MAX];
    struct clp_feed_thread *e = entry_of(f, s->thread);
    bool cpu = s->kind == CLP_SAMPLE_CPU;
    struct out o = {.kind = s->kind,
                    .value_ns = s->value_ns,
                    .time_ns = s->time_ns,
                    .value2 = s->value2,
                    .flags = s->flags | (in_span(s->span) ? CLP_SAMPLE_IN_SPAN : 0),
                    .count = s->count,
                    .frames = frames,
                    .total = cpu ? CLP_CTR_SAMPLED_CPU_NS : CLP_CTR_WALL_WAIT_NS};
    if (!define_thread(f, e, s->thread) || define_frames(f, s, frames) < 0 ||
        !define_span(f, e, s->span) || !write_sample(f, e, &o)) {
        wait_for_room(f, e, s->kind, CLP_SPECIAL_NONE, s->value_ns, s->time_ns);
        return false;
    }
    f->counters[CLP_CTR_SAMPLES_INCOMPLETE] += (s->flags & CLP_SAMPLE_INCOMPLETE) != 0;
    f->counters[CLP_CTR_SAMPLES_TRUNCATED] += (s->flags & CLP_SAMPLE_TRUNCATED) != 0;
    f->counters[CLP_CTR_SAMPLES_HIJACKED] += s->hijacked;
    return true;
}

void clp_feed_time(struct clp_feed *f, const struct clp_thread *t, enum clp_special special,
                   uint64_t cpu_ns, uint64_t time_ns)
{
    struct clp_feed_thread *e = entry_of(f, t);
    uint64_t frame = clp_frame_make(CLP_FRAME_SPECIAL, special, 0);
    struct out o = {.kind = CLP_SAMPLE_CPU,
                    .value_ns = cpu_ns,
                    .time_ns = time_ns,
                    .flags = CLP_SAMPLE_NO_STACK,
                    .count = 1,
                    .frames = &frame,
                    .total = total_of(special)};
    bool written =
        define_thread(f, e, t) &&
        (special == CLP_SPECIAL_NONE ? write_rest(f, e, CLP_SAMPLE_CPU, special, cpu_ns, time_ns)
                                     : write_sample(f, e, &o));
    if (!written)
        wait_for_room(f, e, CLP_SAMPLE_CPU, special, cpu_ns, time_ns);
}

void clp_feed_wait(struct clp_feed *f, const struct clp_thread *t, const struct clp_feed_waiting *w)
{
    struct clp_feed_thread *e = entry_of(f, t);
    enum clp_special special = w->special;
    const struct clp_span *span = w->flags & CLP_SAMPLE_CPU_WAIT ? w->span : NULL;
    bool any =
        e->rest[index_of(CLP_SAMPLE_CPU)].has_stack || e->rest[index_of(CLP_SAMPLE_WALL)].has_stack;
    if (special == CLP_SPECIAL_NONE && !(w->flags & CLP_SAMPLE_CPU_WAIT && any))
        special = e->rest[index_of(CLP_SAMPLE_WALL)].has_stack ? CLP_SPECIAL_NONE
                                                               : CLP_SPECIAL_UNKNOWN_WAIT;
    uint64_t frame = clp_frame_make(CLP_FRAME_SPECIAL, special, 0);
    struct out o = {.kind = CLP_SAMPLE_WALL,
                    .value_ns = w->wait_ns,
                    .time_ns = w->time_ns,
                    .flags = (uint16_t)(w->flags | (special ? CLP_SAMPLE_NO_STACK : 0) |
                                        (in_span(span) ? CLP_SAMPLE_IN_SPAN : 0)),
                    .count = special != CLP_SPECIAL_NONE,
                    .frames = &frame,
                    .total = wall_total_of(special)};
    if (!define_thread(f, e, t) || !define_span(f, e, span) || !write_sample(f, e, &o))
        wait_for_room(f, e, CLP_SAMPLE_WALL, special, w->wait_ns, w->time_ns);
}

/* ---- events ---- */

static bool write_event(struct clp_feed *f, uint32_t thread_id, const struct clp_feed_event *e,
                        uint16_t flags, const uint64_t *frames)
{
    size_t texts = (size_t)e->text_len[0] + e->text_len[1];
    size_t size = CLP_ALIGN_UP(sizeof(struct clp_rec_event) + 8u * e->count + texts, 8);
    struct clp_rec_event *rec = clp_ring_reserve(&f->ring, (uint32_t)size);
    if (!rec)
        return false;
    memset(rec, 0, sizeof(*rec));
    *rec = (struct clp_rec_event){
        .rec = {.size = (uint32_t)size, .type = CLP_REC_EVENT, .count = e->count},
        .time_ns = e->time_ns,
        .value = CLP_MIN(e->value, (double)CLP_WIRE_VALUE_MAX),
        .value2 = CLP_MIN(e->value2, (double)CLP_WIRE_VALUE_MAX),
        .number = e->number,
        .thread_id = thread_id,
        .kind = e->kind,
        .flags = flags,
        .text_len = {e->text_len[0], e->text_len[1]},
        .other_count = e->other_count,
    };
    uint8_t *at = (uint8_t *)(rec + 1);
    memcpy(at, frames, e->count * sizeof(uint64_t));
    at += e->count * sizeof(uint64_t);
    for (unsigned i = 0; i < CLP_EVENT_TEXTS; i++) {
        if (e->text_len[i])
            memcpy(at, e->texts[i], e->text_len[i]);
        at += e->text_len[i];
    }
    memset(at, 0, (size_t)((uint8_t *)rec + size - at));
    clp_ring_commit(&f->ring);
    return true;
}

/* What the event is of; false where nothing is told, or it is too long. */
static bool unsent_key(const struct clp_feed_event *e, struct clp_feed_unsent *ret)
{
    size_t used = 0;
    memset(ret, 0, sizeof(*ret));
    ret->kind = e->kind;
    ret->number = told_of[e->kind].number ? e->number : 0;
    for (unsigned i = 0; i < told_of[e->kind].texts; i++) {
        if (e->text_len[i] > sizeof(ret->text) - used)
            return false;
        if (e->text_len[i])
            memcpy(ret->text + used, e->texts[i], e->text_len[i]);
        used += ret->text_len[i] = e->text_len[i];
    }
    return used > 0;
}

static bool same_type(const struct clp_feed_unsent *a, const struct clp_feed_unsent *b)
{
    return a->kind == b->kind && a->number == b->number &&
           memcmp(a->text_len, b->text_len, sizeof(a->text_len)) == 0 &&
           memcmp(a->text, b->text, (size_t)a->text_len[0] + a->text_len[1]) == 0;
}

/* Where values of this type wait; NULL: with all of the kind. */
static struct clp_feed_unsent *unsent_of(struct clp_feed *f, const struct clp_feed_event *e)
{
    static struct clp_feed_unsent key;
    if (!unsent_key(e, &key))
        return NULL;
    if (!f->unsent)
        f->unsent = clp_pages_alloc(UNSENT_MAX * sizeof(struct clp_feed_unsent));
    for (uint32_t i = 0; f->unsent && i < f->unsent_count; i++)
        if (same_type(&f->unsent[i], &key))
            return &f->unsent[i];
    if (!f->unsent || f->unsent_count == UNSENT_MAX)
        return NULL;
    f->unsent[f->unsent_count] = key;
    return &f->unsent[f->unsent_count++];
}

static void keep_unsent(struct clp_feed *f, const struct clp_feed_event *e)
{
    struct clp_feed_unsent *u = unsent_of(f, e);
    *(u ? &u->value : &f->waiting_events[e->kind].value) += e->value;
    *(u ? &u->value2 : &f->waiting_events[e->kind].value2) += e->value2;
    f->counters[CLP_CTR_DROP_RING_FULL]++;
}

void clp_feed_event(struct clp_feed *f, const struct clp_feed_event *e)
{
    static uint64_t frames[CLP_WIRE_FRAMES_MAX];
    struct clp_feed_thread *t = entry_of(f, e->thread);
    const struct clp_feed_sample s = {.count = e->count, .frames = e->frames, .span = e->span};
    uint16_t flags = e->flags | (in_span(e->span) ? CLP_SAMPLE_IN_SPAN : 0);
    if (define_thread(f, t, e->thread) && define_frames(f, &s, frames) == 0 &&
        define_span(f, t, e->span) && write_event(f, t->thread_id, e, flags, frames))
        return;
    if (e->value > 0 || e->value2 > 0)
        keep_unsent(f, e);
}

void clp_feed_define(struct clp_feed *f, const struct clp_thread *t, const uint64_t *frames,
                     uint16_t count)
{
    struct clp_feed_thread *e = entry_of(f, t);
    (void)!define_thread(f, e, t);
    for (uint16_t i = 0; i < count && define_frame(f, frames[i]) != -ENOSPC; i++)
        ;
}

/* Under a word, as the process's. */
static bool write_stackless(struct clp_feed *f, struct clp_feed_event *e, uint64_t time_ns)
{
    uint64_t frame = clp_frame_make(CLP_FRAME_SPECIAL, CLP_SPECIAL_NO_EVENT_STACK, 0);
    const struct clp_thread *process = clp_threads_process();
    struct clp_feed_thread *t = entry_of(f, process);
    e->time_ns = time_ns;
    e->flags = CLP_SAMPLE_NO_STACK;
    e->count = 1;
    return define_thread(f, t, process) && write_event(f, t->thread_id, e, e->flags, &frame);
}

/* From the last one on, so that those that are left when the ring is full are the first ones. */
static bool settle_unsent(struct clp_feed *f, uint64_t time_ns)
{
    for (; f->unsent_count; f->unsent_count--) {
        const struct clp_feed_unsent *u = &f->unsent[f->unsent_count - 1];
        struct clp_feed_event e = {
            .value = u->value,
            .value2 = u->value2,
            .number = u->number,
            .kind = u->kind,
            .texts = {u->text, u->text + u->text_len[0]},
            .text_len = {u->text_len[0], u->text_len[1]},
        };
        if (!write_stackless(f, &e, time_ns))
            return false;
    }
    return true;
}

/* Those that no stack is left for: their sums. */
static bool settle_events(struct clp_feed *f, uint64_t time_ns)
{
    for (uint16_t kind = 0; kind < CLP_SAMPLE_KIND_COUNT; kind++) {
        double value = f->waiting_events[kind].value, value2 = f->waiting_events[kind].value2;
        struct clp_feed_event e = {.value = value, .value2 = value2, .kind = kind};
        if (value <= 0 && value2 <= 0)
            continue;
        if (!write_stackless(f, &e, time_ns))
            return false;
        f->waiting_events[kind].value = f->waiting_events[kind].value2 = 0;
    }
    return settle_unsent(f, time_ns);
}

static void show(const struct clp_feed *f, _Atomic uint64_t *shared)
{
    for (unsigned i = 0; i < CLP_CTR_COUNT; i++)
        atomic_store_explicit(&shared[i], f->counters[i], memory_order_relaxed);
}

static bool waits(const struct clp_feed *f)
{
    return f->waiting_ns[0] || f->waiting_ns[1];
}

bool clp_feed_mark(struct clp_feed *f, uint64_t flush_id, uint64_t time_ns)
{
    for (uint32_t i = 0; waits(f) && i < f->slot_high; i++)
        if (!settle(f, &f->threads[i]))
            return false;
    for (uint32_t i = SLOT_ENTRIES; waits(f) && i < ENTRIES; i++)
        if (!settle(f, &f->threads[i]))
            return false;
    if (!settle_events(f, time_ns))
        return false;
    struct clp_rec_mark *mark = clp_ring_reserve(&f->ring, sizeof(*mark));
    if (!mark)
        return false;
    *mark = (struct clp_rec_mark){.rec = {.size = sizeof(*mark), .type = CLP_REC_MARK},
                                  .flush_id = flush_id,
                                  .time_ns = time_ns};
    show(f, f->ring.header->marked);
    clp_ring_commit(&f->ring);
    return true;
}

/* ---- counters ---- */

void clp_feed_publish(struct clp_feed *f, const struct clp_feed_totals *now, uint64_t now_ns)
{
    uint64_t *c = f->counters;
    const struct clp_feed_totals *b = &f->base;
    c[CLP_CTR_PROCESS_CPU_NS] = now->process_cpu_ns - b->process_cpu_ns;
    c[CLP_CTR_LIBRARY_CPU_NS] = now->library_cpu_ns - b->library_cpu_ns;
    c[CLP_CTR_DROP_CAPTURE_FULL] = now->capture_full - b->capture_full;
    c[CLP_CTR_DROP_REENTERED] = now->capture_reentered - b->capture_reentered;
    c[CLP_CTR_DROP_TIMER_QUOTA] = now->timer_quota - b->timer_quota;
    c[CLP_CTR_DROP_TABLE_FULL] = now->table_full - b->table_full;
    c[CLP_CTR_SLOWDOWNS] = now->slowdowns - b->slowdowns;
    c[CLP_CTR_WALL_STACKS] = now->wall_stacks - b->wall_stacks;
    c[CLP_CTR_WALL_MOVED] = now->wall_moved - b->wall_moved;
    c[CLP_CTR_WALL_VISITS] = now->wall_visits - b->wall_visits;
    c[CLP_CTR_WALL_COST_NS] = now->wall_cost_ns - b->wall_cost_ns;
    for (unsigned i = 0; i < CLP_ARRAY_LEN(now->events); i++)
        c[CLP_CTR_EXCEPTIONS + i] = now->events[i] - b->events[i];
    c[CLP_CTR_DEFER_RING_FULL_CPU_NS] = f->waiting_ns[0];
    c[CLP_CTR_DEFER_RING_FULL_WALL_NS] = f->waiting_ns[1];
    c[CLP_CTR_THREADS] = now->threads;
    c[CLP_CTR_TIMERS] = now->timers;
    c[CLP_CTR_BODIES] = now->bodies;
    c[CLP_CTR_LIBRARY_BYTES] = now->library_bytes;
    c[CLP_CTR_INTERVAL_NS] = now->interval_ns;
    c[CLP_CTR_SPAN_HOOK] = now->span_hook;
    memcpy(&c[CLP_CTR_HEAP_GEN0_BYTES], now->runtime, sizeof(now->runtime));
    struct clp_wire_header *h = f->ring.header;
    show(f, h->counters);
    atomic_store_explicit(&h->heartbeat_ns, now_ns, memory_order_release);
}
