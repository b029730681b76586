/* Event blocks: rows with compressed or plain headers. This is the hot path of the reader. */
#include "sampler/nettrace/parts.h"

#include <errno.h>
#include <string.h>

enum {
    HAS_METADATA = 0x01,
    HAS_CAPTURE = 0x02,
    HAS_THREAD = 0x04,
    HAS_STACK = 0x08,
    HAS_ACTIVITY = 0x10, /* V6: label list */
    HAS_RELATED = 0x20,
    IS_SORTED = 0x40,
    HAS_SIZE = 0x80,
};
#define COMPRESSED 1u
#define BLOCK_HEADER_BYTES 20u

/* A row's header; those of a block build on one another. */
struct row {
    uint64_t ticks, thread, capture;
    uint32_t metadata, sequence, processor, stack, size;
    uint32_t activity_at, related_at; /* V6: label list and 0 */
    uint8_t flags;
};

/* ---- headers ------------------------------------------------------------------------------- */

/* The block has CLP_NT_SLACK zeros behind it: no header runs out of them. */
static const uint8_t *read_compressed(const uint8_t *p, const uint8_t *base, bool v6, struct row *h)
{
    uint8_t f = h->flags = *p++;
    if (f & HAS_METADATA)
        h->metadata = (uint32_t)clp_nt_uleb(&p);
    if (f & HAS_CAPTURE) {
        h->sequence += (uint32_t)clp_nt_uleb(&p);
        h->capture = clp_nt_uleb(&p);
        h->processor = (uint32_t)clp_nt_uleb(&p);
    }
    if (h->metadata != 0 || v6)
        h->sequence++;
    if (f & HAS_THREAD)
        h->thread = clp_nt_uleb(&p);
    if (f & HAS_STACK)
        h->stack = (uint32_t)clp_nt_uleb(&p);
    h->ticks += clp_nt_uleb(&p);
    if (v6) {
        if (f & HAS_ACTIVITY)
            h->activity_at = (uint32_t)clp_nt_uleb(&p);
    } else {
        if (f & HAS_ACTIVITY) {
            h->activity_at = (uint32_t)(p - base);
            p += CLP_NETTRACE_GUID_BYTES;
        }
        if (f & HAS_RELATED) {
            h->related_at = (uint32_t)(p - base);
            p += CLP_NETTRACE_GUID_BYTES;
        }
    }
    if (f & HAS_SIZE)
        h->size = (uint32_t)clp_nt_uleb(&p);
    return p;
}

/* The form without compression: numbers at their full width. */
static const uint8_t *read_plain(const uint8_t *p, const struct clp_nt_block *b, bool v6,
                                 struct row *h)
{
    struct clp_bytes c = clp_bytes_of(p, (size_t)(b->data + b->len + CLP_NT_SLACK - p));
    (void)clp_bytes_u32(&c); /* size of the row */
    uint32_t metadata = clp_bytes_u32(&c);
    h->metadata = metadata & 0x7fffffffu;
    h->flags = metadata >> 31 ? IS_SORTED : 0;
    h->sequence = clp_bytes_u32(&c);
    h->thread = clp_bytes_u64(&c);
    h->capture = clp_bytes_u64(&c);
    h->processor = clp_bytes_u32(&c);
    h->stack = clp_bytes_u32(&c);
    h->ticks = clp_bytes_u64(&c);
    if (v6) {
        h->activity_at = clp_bytes_u32(&c);
    } else {
        h->activity_at = (uint32_t)(c.at - b->data);
        h->related_at = h->activity_at + CLP_NETTRACE_GUID_BYTES;
        (void)clp_bytes_take(&c, 2 * CLP_NETTRACE_GUID_BYTES);
    }
    h->size = clp_bytes_u32(&c);
    return c.bad ? NULL : c.at;
}

/* ---- rows ---------------------------------------------------------------------------------- */

/* What the rows of a block have looked up last. */
struct block_reader {
    struct clp_nettrace *r;
    struct clp_nt_block *b;
    bool v6, compressed;
    struct row h;
    uint64_t capture;
    uint32_t thread; /* index of `capture`, valid when known */
    bool known;
    uint64_t about; /* V6: thread index whose number is about_tid */
    uint64_t about_tid;
};

static int find_capture(struct block_reader *s)
{
    if (s->known && s->capture == s->h.capture)
        return 0;
    s->thread = clp_nt_thread(s->r, s->h.capture);
    if (s->thread == UINT32_MAX)
        return -ENOMEM;
    s->capture = s->h.capture;
    s->known = true;
    return 0;
}

/* Before V6 a row says the number itself. */
static uint64_t thread_of(struct block_reader *s)
{
    if (!s->v6)
        return s->h.thread;
    if (s->about != s->h.thread || s->about_tid == UINT64_MAX) {
        const struct clp_nt_thread *t = clp_nt_find_thread(s->r, s->h.thread);
        s->about = s->h.thread;
        s->about_tid = t ? t->os_tid : 0;
    }
    return s->about_tid;
}

static uint32_t stack_of(struct clp_nettrace *r, uint32_t id)
{
    if (id == 0)
        return 0;
    uint32_t at = id - r->stack_first_id;
    if (at < r->stack_count)
        return at + 1;
    r->counts.no_stack++;
    return 0;
}

static void set_activity(struct block_reader *s, struct clp_nt_held *to)
{
    struct clp_nettrace *r = s->r;
    if (s->v6) {
        uint32_t at = s->h.activity_at - r->label_first_id;
        to->activity_at = s->h.activity_at && at < r->label_count ? at + 1 : 0;
        to->related_at = 0;
        return;
    }
    to->activity_at = s->h.activity_at;
    to->related_at = s->h.related_at;
}

static int hold_row(struct block_reader *s, const uint8_t *payload)
{
    struct clp_nettrace *r = s->r;
    const struct row *h = &s->h;
    int e = find_capture(s);
    if (e < 0)
        return e;
    if (r->threads[s->thread].index == h->capture) /* not the one that stands for the many */
        clp_nt_note_sequence(r, s->thread, h->sequence);
    if (h->flags & IS_SORTED)
        r->safe_ticks = CLP_MAX(r->safe_ticks, h->ticks);
    const struct clp_nettrace_meta *meta = h->metadata < r->meta_cap ? r->metas[h->metadata] : NULL;
    if (!meta) {
        r->counts.no_metadata++;
        return 0;
    }
    struct clp_nt_held *to = clp_nt_held_next(r);
    if (!to)
        return -ENOMEM;
    to->ticks = h->ticks;
    to->thread_id = thread_of(s);
    to->meta = meta;
    to->block = s->b;
    to->payload_at = (uint32_t)(payload - s->b->data);
    to->payload_len = h->size;
    to->stack = stack_of(r, h->stack);
    set_activity(s, to);
    to->sequence = h->sequence;
    to->processor = h->processor;
    to->capture = s->thread;
    clp_nt_hold(r);
    return 0;
}

static int keep_metadata(struct block_reader *s, const uint8_t *payload)
{
    return clp_nt_add_metadata_v4(s->r, payload, s->h.size);
}

/* Where the rows begin, or NULL. */
static const uint8_t *block_rows(const struct clp_nt_block *b, bool *ret_compressed)
{
    struct clp_bytes c = clp_bytes_of(b->data, b->len);
    uint16_t size = clp_bytes_u16(&c);
    uint16_t flags = clp_bytes_u16(&c);
    if (c.bad || size < BLOCK_HEADER_BYTES || size > b->len)
        return NULL;
    *ret_compressed = flags & COMPRESSED;
    return b->data + size;
}

static int read_rows(struct block_reader *s,
                     int (*row)(struct block_reader *s, const uint8_t *payload))
{
    const uint8_t *p = block_rows(s->b, &s->compressed);
    const uint8_t *end = s->b->data + s->b->len;
    if (!p)
        return -EPROTO;
    while (p < end) {
        p = s->compressed ? read_compressed(p, s->b->data, s->v6, &s->h)
                          : read_plain(p, s->b, s->v6, &s->h);
        if (!p || p > end || s->h.size > (size_t)(end - p))
            return -EPROTO;
        int e = row(s, p);
        if (e < 0)
            return e;
        p += s->h.size;
        if (!s->compressed && !s->v6)
            p = s->b->data + CLP_ALIGN_UP((uint64_t)(p - s->b->data), 4);
    }
    return 0;
}

static struct block_reader reader_of(struct clp_nettrace *r, struct clp_nt_block *b)
{
    return (struct block_reader){
        .r = r, .b = b, .v6 = r->info.version >= 6, .about_tid = UINT64_MAX};
}

int clp_nt_read_events(struct clp_nettrace *r, struct clp_nt_block *b)
{
    struct block_reader s = reader_of(r, b);
    return read_rows(&s, hold_row);
}

int clp_nt_read_metadata_v4(struct clp_nettrace *r, struct clp_nt_block *b)
{
    struct block_reader s = reader_of(r, b);
    return read_rows(&s, keep_metadata);
}
