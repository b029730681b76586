#include "sampler/inproc/event_member.h"

#include "base/core/arena.h"
#include "base/core/text.h"
#include "sampler/inproc/bodies.h"
#include "sampler/inproc/collect.h"
#include "sampler/inproc/event_path.h"
#include "sampler/inproc/thread_table.h"

#include <errno.h>
#include <string.h>

/* Of a text, NUL included: names of types may be long, of a message the beginning says enough. */
static const size_t text_bytes[CLP_EVENT_TEXTS] = {513, 257};
#define TEXT_BYTES_MAX 513u
/* One of the deepest stacks, with that of the lock's owner behind it; the rest is small. */
#define MEMBER_BYTES_MAX (3u * sizeof(uint64_t) * CLP_WALK_FRAMES_MAX)

static struct {
    uint8_t *data;
    size_t used, most; /* `most`: of all epochs; what lies beyond was never touched */
    uint64_t epoch;    /* counts up with each time that all is given back */
    uint64_t lost;
} pool = {.epoch = 1};

int clp_event_members_init(void)
{
    if (!pool.data)
        pool.data = clp_pages_alloc(CLP_EVENT_MEMBERS_BYTES);
    return pool.data ? 0 : -ENOMEM;
}

void *clp_event_members_alloc(size_t bytes)
{
    bytes = CLP_ALIGN_UP(bytes, 16);
    if (!pool.data || bytes > CLP_EVENT_MEMBERS_BYTES - pool.used)
        return NULL;
    void *p = pool.data + pool.used;
    pool.used += bytes;
    memset(p, 0, bytes);
    return p;
}

/* ---- what many members have in common ---- */

#define BLOBS 512u

static uint64_t hash_of(const uint8_t *bytes, size_t n)
{
    uint64_t h = n * 0x9e3779b97f4a7c15ull;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, CLP_MIN(n - i, sizeof(word)));
        h = (h ^ word) * 0xd6e8feb86659fd93ull;
        h ^= h >> 32;
    }
    return h;
}

/* Most stacks and types of an epoch are those of a few places. `bytes` at `p`, which was allocated
 * last, become a part of the epoch, or are given back where it holds the same already. */
static const void *share(void *p, size_t bytes)
{
    static struct blob {
        uint64_t hash, epoch;
        const void *at;
        size_t bytes;
    } blobs[BLOBS];
    uint64_t hash = hash_of(p, bytes);
    struct blob *b = &blobs[hash % BLOBS];
    size_t start = (size_t)((uint8_t *)p - pool.data);
    if (b->epoch == pool.epoch && b->hash == hash && b->bytes == bytes &&
        memcmp(b->at, p, bytes) == 0) {
        pool.used = start;
        return b->at;
    }
    pool.used = start + CLP_ALIGN_UP(bytes, 16);
    *b = (struct blob){hash, pool.epoch, p, bytes};
    return p;
}

bool clp_event_members_crowded(void)
{
    return pool.used > CLP_EVENT_MEMBERS_BYTES / 3 * 2;
}

bool clp_event_members_full(void)
{
    return pool.used > CLP_EVENT_MEMBERS_BYTES - MEMBER_BYTES_MAX;
}

void clp_event_members_reset(void)
{
    pool.most = CLP_MAX(pool.most, pool.used);
    pool.used = 0;
    pool.epoch++;
}

uint64_t clp_event_members_lost(void)
{
    return pool.lost;
}

size_t clp_event_members_bytes(void)
{
    return CLP_MAX(pool.most, pool.used);
}

const struct clp_thread *clp_event_thread_of(int32_t tid)
{
    clp_lock(&clp_thread_table.lock);
    struct clp_record *r = clp_thread_table.records ? clp_table_by_tid(tid) : NULL;
    clp_unlock(&clp_thread_table.lock);
    return r ? &r->pub : NULL;
}

/* ---- what is the runtime's own ---- */

/* Managed code of the runtime in which events are raised: .NET 9 and 10 throw in System.Runtime.EH,
 * and tell of waits for handles from a class of their event sources. */
static const struct helper {
    const char *type;
    enum clp_event_type of;
} helpers[] = {
    {"System.Runtime.EH", CLP_EVENT_EXCEPTION},
    {"System.Diagnostics.Tracing.NativeRuntimeEventSource", CLP_EVENT_HANDLE},
};

static const struct helper *find_helper(uint32_t body_id)
{
    static union clp_rec_any scratch;
    struct clp_rec_body body;
    if (clp_bodies_body_record(body_id, &body) < 0 ||
        clp_bodies_method_record(body.method_id, &scratch, sizeof(scratch)) < 0)
        return NULL;
    for (size_t i = 0; i < CLP_ARRAY_LEN(helpers); i++)
        if (scratch.method.type_len == strlen(helpers[i].type) &&
            memcmp(&scratch.method + 1, helpers[i].type, scratch.method.type_len) == 0)
            return &helpers[i];
    return NULL;
}

/* Asked for once a body. */
static bool is_helper(uint32_t body_id, uint16_t event_type)
{
    static struct {
        uint32_t id;
        const struct helper *answer;
    } cache[256];
    uint32_t at = body_id % CLP_ARRAY_LEN(cache);
    if (cache[at].id != body_id) {
        cache[at].answer = find_helper(body_id);
        cache[at].id = body_id;
    }
    return cache[at].answer && cache[at].answer->of == event_type;
}

/* What calls and is no native code is somebody's method, whether it is known or not: its caller
 * would be named in its place. */
uint32_t clp_event_runtime_frames(const struct clp_event *e, const struct clp_walk_frame *f,
                                  uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (f[i].kind == CLP_WALK_STUB ||
            (f[i].kind == CLP_WALK_MANAGED && !is_helper(f[i].id, e->type)))
            return i;
    return 0;
}

/* ---- members ---- */

/* UTF-8 of at most text_bytes[i], NUL included, in `buf`; its length. */
static size_t clean_text(const uint16_t *text, uint16_t units, unsigned i, char *buf)
{
    struct clp_text t = clp_text_in(buf, text_bytes[i]);
    units = CLP_MIN(units, (uint16_t)CLP_EVENT_TEXT_UNITS);
    /* A pair that the cut has parted is no character; NUL ends no text here. */
    if (units == CLP_EVENT_TEXT_UNITS && (text[units - 1] & 0xfc00) == 0xd800)
        units--;
    for (uint16_t at = 0; at < units;) {
        uint16_t run = at;
        while (run < units && text[run])
            run++;
        clp_text_utf16(&t, text + at, (size_t)(run - at));
        if (run < units)
            clp_text_add(&t, "\xef\xbf\xbd");
        at = (uint16_t)(run + 1);
    }
    return t.len;
}

static void copy_text(struct clp_event_member *m, unsigned i, struct clp_event *e)
{
    char buf[TEXT_BYTES_MAX];
    size_t len = clean_text(clp_event_text(e, i), e->text_len[i], i, buf);
    char *kept = len ? clp_event_members_alloc(len + 1) : NULL;
    if (kept) {
        memcpy(kept, buf, len);
        m->texts[i] = share(kept, len + 1);
        m->text_len[i] = (uint16_t)len;
    }
}

static const char *heap_name(uint64_t heap)
{
    static const char *const names[CLP_EVENT_HEAPS] = {"", "large", "pinned"};
    return names[heap < CLP_EVENT_HEAPS ? heap : 0];
}

static void name_heap(struct clp_event_member *m, const struct clp_event *e)
{
    m->texts[1] = heap_name(e->number2);
    m->text_len[1] = (uint16_t)strlen(m->texts[1]);
}

/* Many members are of few threads: one copy of each in an epoch, as long as its name stays. */
static const struct clp_thread *copy_thread(int32_t tid)
{
    static const struct clp_thread *copies[64];
    static uint64_t copied_in;
    const struct clp_thread *t = clp_event_thread_of(tid);
    const struct clp_thread **known = &copies[(uint32_t)tid % CLP_ARRAY_LEN(copies)];
    t = t ? t : clp_threads_process();
    if (copied_in != pool.epoch)
        memset(copies, 0, sizeof(copies));
    copied_in = pool.epoch;
    if (*known && (*known)->thread_id == t->thread_id && (*known)->name_version == t->name_version)
        return *known;
    struct clp_thread *copy = clp_event_members_alloc(sizeof(*copy));
    if (!copy)
        return NULL;
    *copy = *t;
    return *known = copy;
}

/* Who held the lock. */
static void name_owner(struct clp_event_member *m)
{
    const struct clp_thread *owner =
        m->number && m->number <= INT32_MAX ? clp_event_thread_of((int32_t)m->number) : NULL;
    size_t n = owner ? strnlen(owner->name, sizeof(owner->name)) : 0;
    char *kept = n ? clp_event_members_alloc(n + 1) : NULL;
    if (!kept)
        return;
    memcpy(kept, owner->name, n);
    m->texts[0] = kept;
    m->text_len[0] = (uint16_t)n;
}

static bool copy_stack(struct clp_event_member *m, struct clp_event *e, uint64_t pass)
{
    struct clp_capture *c = clp_event_capture(e);
    struct clp_walk_result w = {0};
    const struct clp_walk_frame *f = NULL;
    uint32_t top = 0;
    if (e->has_stack) {
        m->span = c->span;
        f = clp_collect_walk(c, pass, &w);
        top = clp_event_runtime_frames(e, f, w.count);
        if (e->type == CLP_EVENT_EXCEPTION && top > 0)
            m->path_known = clp_event_path_learn(e, c, f, top);
    }
    uint64_t *frames = clp_event_members_alloc((w.count - top + 1) * sizeof(*frames));
    if (!frames)
        return false;
    m->count = clp_collect_encode(f + top, w.count - top, &w, frames);
    m->flags = clp_collect_flags(&w);
    if (m->count == 0) {
        frames[0] = clp_frame_make(CLP_FRAME_SPECIAL, CLP_SPECIAL_NO_EVENT_STACK, 0);
        m->count = 1;
        m->flags = CLP_SAMPLE_NO_STACK;
    }
    m->frames = share(frames, m->count * sizeof(*frames));
    return true;
}

struct clp_event_member *clp_event_member_make(struct clp_event *e, uint64_t pass,
                                               const struct clp_events_sink *sink)
{
    struct clp_event_member *m = clp_event_members_alloc(sizeof(*m));
    if (!m || !(m->thread = copy_thread(e->tid)) || !copy_stack(m, e, pass)) {
        pool.lost++;
        return NULL;
    }
    m->stratum = e->stratum;
    m->time_ns = e->time_ns;
    m->number = e->number;
    m->value = e->value;
    m->value2 = e->value2;
    m->certain = e->certain;
    m->chance = (double)e->chance;
    copy_text(m, 0, e);
    copy_text(m, 1, e);
    if (e->type == CLP_EVENT_ALLOC)
        name_heap(m, e);
    if (e->type == CLP_EVENT_LOCK)
        name_owner(m);
    sink->define(sink->user, m->thread, m->frames, m->count);
    return m;
}

void clp_event_member_write(const struct clp_event_member *m, enum clp_sample_kind kind,
                            double value, double value2, const struct clp_events_sink *sink)
{
    struct clp_feed_event out = {
        .thread = m->thread,
        .time_ns = m->time_ns,
        .value = value,
        .value2 = value2,
        .number = m->number,
        .kind = (uint16_t)kind,
        .flags = m->flags,
        .count = m->count,
        .other_count = m->other_count,
        .frames = m->frames,
        .texts = {m->texts[0], m->texts[1]},
        .text_len = {m->text_len[0], m->text_len[1]},
        .span = &m->span,
    };
    sink->event(sink->user, &out);
}

void clp_event_write_unsampled(enum clp_sample_kind kind, const struct clp_event_name *name,
                               double value, double value2, uint64_t time_ns,
                               const struct clp_events_sink *sink)
{
    uint64_t frame = clp_frame_make(CLP_FRAME_SPECIAL, CLP_SPECIAL_NO_EVENT_STACK, 0);
    char text[TEXT_BYTES_MAX];
    const char *heap = kind == CLP_SAMPLE_ALLOC && name ? heap_name(name->detail) : "";
    size_t len = name ? clean_text(name->text, name->units, 0, text) : 0;
    struct clp_feed_event out = {
        .thread = clp_threads_process(),
        .time_ns = time_ns,
        .value = value,
        .value2 = value2,
        .kind = (uint16_t)kind,
        .flags = CLP_SAMPLE_NO_STACK,
        .count = 1,
        .frames = &frame,
        .texts = {text, heap},
        .text_len = {(uint16_t)len, (uint16_t)strlen(heap)},
    };
    sink->event(sink->user, &out);
}
