/* The frame of a stream: magic, blocks and their ends, whatever pieces the bytes come in. */
#include "sampler/nettrace/nettrace.h"

#include "sampler/nettrace/parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char MAGIC[] = "Nettrace";
static const char MAGIC_V4[] = "!FastSerialization.1";
#define MAGIC_BYTES 8u
#define V4_HEAD_BYTES (MAGIC_BYTES + 4u + sizeof(MAGIC_V4) - 1)
#define V6_HEAD_BYTES (MAGIC_BYTES + 12u)
#define V4_TYPE_MAX 64u
#define V4_TRACE_BYTES 48u
#define BLOCK_MIN_BYTES (4u << 10)
_Static_assert((BLOCK_MIN_BYTES << (CLP_NT_BLOCK_CLASSES - 1)) == CLP_NETTRACE_BLOCK_MAX_BYTES,
               "the largest class holds the largest block");
#define POOL_MAX_BYTES (4u << 20)

/* Tags of V4's serialization. */
enum { TAG_NULL = 1, TAG_BEGIN = 5, TAG_END = 6 };

static int break_off(struct clp_nettrace *r, const char *why)
{
    r->problem = why;
    r->state = CLP_NT_BROKEN;
    return -EPROTO;
}

/* ---- blocks -------------------------------------------------------------------------------- */

static void free_block(struct clp_nettrace *r, struct clp_nt_block *b)
{
    r->block_bytes -= b->cap;
    free(b);
}

/* Sizes are powers of two; each has its list. */
static unsigned class_of(uint32_t cap)
{
    unsigned c = 0;
    while ((uint64_t)BLOCK_MIN_BYTES << c < cap)
        c++;
    return c;
}

void clp_nt_block_release(struct clp_nettrace *r, struct clp_nt_block *b)
{
    unsigned c = class_of(b->cap);
    if (r->pool_bytes + b->cap > POOL_MAX_BYTES) {
        free_block(r, b);
        return;
    }
    b->next = r->pool[c];
    r->pool[c] = b;
    r->pool_bytes += b->cap;
}

static struct clp_nt_block *take_block(struct clp_nettrace *r, uint32_t size)
{
    unsigned c = class_of(size);
    uint32_t cap = BLOCK_MIN_BYTES << c;
    struct clp_nt_block *b = r->pool[c];
    if (b) {
        r->pool[c] = b->next;
        r->pool_bytes -= b->cap;
        return b;
    }
    b = malloc(sizeof(*b) + cap + CLP_NT_SLACK);
    if (!b)
        return NULL;
    b->cap = cap;
    r->block_bytes += cap;
    return b;
}

static int begin_body(struct clp_nettrace *r, enum clp_nt_kind kind, uint32_t size)
{
    if (size > CLP_NETTRACE_BLOCK_MAX_BYTES)
        return break_off(r, "a block is longer than any writer makes them");
    clp_nt_bound_held(r);
    struct clp_nt_block *b = take_block(r, size);
    if (!b) {
        r->problem = "out of memory";
        r->state = CLP_NT_BROKEN;
        return -ENOMEM;
    }
    b->len = 0;
    b->held = 1; /* while it is read */
    r->body = b;
    r->body_size = size;
    r->kind = kind;
    r->state = CLP_NT_BODY;
    r->head_len = 0;
    return 0;
}

/* ---- the trace block ----------------------------------------------------------------------- */

static uint64_t days_since_1970(int64_t y, int64_t m, int64_t d)
{
    y -= m <= 2; /* years begin in March: the leap day comes last */
    int64_t era = (y >= 0 ? y : y - 399) / 400;
    int64_t year = y - era * 400;
    int64_t day = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return (uint64_t)(era * 146097 + year * 365 + year / 4 - year / 100 + day - 719468);
}

static uint64_t read_time(struct clp_bytes *c)
{
    uint16_t t[8]; /* year, month, day of week, day, hour, minute, second, millisecond */
    for (size_t i = 0; i < CLP_ARRAY_LEN(t); i++)
        t[i] = clp_bytes_u16(c);
    if (t[0] < 1970 || t[0] > 9999 || t[1] < 1 || t[1] > 12 || t[3] < 1 || t[3] > 31)
        return 0;
    uint64_t seconds = days_since_1970(t[0], t[1], t[3]) * 86400 + t[4] * 3600u + t[5] * 60u + t[6];
    return seconds * 1000 + t[7];
}

static uint64_t number_of(const uint8_t *text, uint64_t n)
{
    uint64_t v = 0;
    for (uint64_t i = 0; i < n && i < 18 && text[i] >= '0' && text[i] <= '9'; i++)
        v = v * 10 + (uint64_t)(text[i] - '0');
    return v;
}

static void read_trace_pair(struct clp_nettrace *r, struct clp_bytes *c)
{
    uint64_t key_len = clp_bytes_uleb(c);
    const uint8_t *key = clp_bytes_take(c, key_len > SIZE_MAX ? SIZE_MAX : (size_t)key_len);
    uint64_t len = clp_bytes_uleb(c);
    const uint8_t *value = clp_bytes_take(c, len > SIZE_MAX ? SIZE_MAX : (size_t)len);
    if (!key || !value)
        return;
    if (key_len == 9 && memcmp(key, "ProcessId", 9) == 0)
        r->info.pid = number_of(value, len);
    if (key_len == 19 && memcmp(key, "HardwareThreadCount", 19) == 0)
        r->info.processors = (uint32_t)number_of(value, len);
}

static int read_trace(struct clp_nettrace *r, const struct clp_nt_block *b)
{
    struct clp_bytes c = clp_bytes_of(b->data, b->len);
    r->info.sync_unix_ms = read_time(&c);
    r->info.sync_ticks = clp_bytes_u64(&c);
    r->info.frequency = clp_bytes_u64(&c);
    r->info.pointer_bytes = clp_bytes_u32(&c);
    if (r->info.version >= 6) {
        for (uint32_t n = clp_bytes_u32(&c); n > 0 && !c.bad; n--)
            read_trace_pair(r, &c);
    } else {
        r->info.pid = clp_bytes_u32(&c);
        r->info.processors = clp_bytes_u32(&c);
    }
    if (r->info.frequency == 0)
        r->info.frequency = CLP_NSEC_PER_SEC;
    if (c.bad || (r->info.pointer_bytes != 4 && r->info.pointer_bytes != 8))
        return break_off(r, "its first block describes no trace");
    return 0;
}

/* ---- a whole block ------------------------------------------------------------------------- */

static int read_block(struct clp_nettrace *r, struct clp_nt_block *b)
{
    int e;
    switch (r->kind) {
    case CLP_NT_TRACE:
        return read_trace(r, b);
    case CLP_NT_EVENTS:
        e = clp_nt_read_events(r, b);
        clp_nt_release_safe(r);
        return e;
    case CLP_NT_METADATA:
        return r->info.version >= 6 ? clp_nt_read_metadata_v6(r, b) : clp_nt_read_metadata_v4(r, b);
    case CLP_NT_SEQUENCE_POINT:
        return clp_nt_read_sequence_point(r, b);
    case CLP_NT_STACKS:
        return clp_nt_read_stacks(r, b);
    case CLP_NT_THREADS:
        return clp_nt_read_threads(r, b);
    case CLP_NT_THREADS_GONE:
        return clp_nt_read_threads_gone(r, b);
    case CLP_NT_LABELS:
        return clp_nt_read_labels(r, b);
    case CLP_NT_END:
    case CLP_NT_UNKNOWN: /* a later version may have more: to be skipped */
        break;
    }
    return 0;
}

static int end_body(struct clp_nettrace *r)
{
    struct clp_nt_block *b = r->body;
    memset(b->data + b->len, 0, CLP_NT_SLACK);
    r->body = NULL;
    r->state = CLP_NT_OBJECT;
    r->inside = r->info.version < 6;
    bool is_first = r->info.pointer_bytes == 0;
    int e = is_first && r->kind != CLP_NT_TRACE
                ? break_off(r, "its first block is not the trace's description")
                : read_block(r, b);
    if (--b->held == 0)
        clp_nt_block_release(r, b);
    if (r->state == CLP_NT_BROKEN)
        return e;
    if (e == -EPROTO) {
        r->counts.bad_blocks++;
        e = 0;
    }
    if (e < 0) {
        r->problem = "out of memory";
        r->state = CLP_NT_BROKEN;
    }
    return e;
}

/* ---- heads --------------------------------------------------------------------------------- */

static uint32_t head_u32(const struct clp_nettrace *r, size_t at)
{
    uint32_t v;
    memcpy(&v, r->head + at, sizeof(v));
    return v;
}

/* Each head reader answers how many bytes it needs to go on, more than there are; or 0 when it has
 * taken the head, or a negative errno. */
static int64_t read_magic(struct clp_nettrace *r)
{
    size_t n = CLP_MIN(r->head_len, MAGIC_BYTES);
    if (memcmp(r->head, MAGIC, n) != 0)
        return break_off(r, "it does not begin with \"Nettrace\"");
    if (r->head_len < V6_HEAD_BYTES)
        return V6_HEAD_BYTES;
    if (head_u32(r, MAGIC_BYTES) == 0) {
        r->info.version = head_u32(r, MAGIC_BYTES + 4);
        if (r->info.version < 6)
            return break_off(r, "it states a version that does not exist");
        if (r->info.version > 6)
            return break_off(r, "it is of a format version newer than 6");
    } else {
        if (r->head_len < V4_HEAD_BYTES)
            return V4_HEAD_BYTES;
        if (memcmp(r->head + MAGIC_BYTES + 4, MAGIC_V4, sizeof(MAGIC_V4) - 1) != 0)
            return break_off(r, "it is of no known format version");
        r->info.version = 4; /* the trace object says it exactly */
    }
    r->state = CLP_NT_OBJECT;
    r->head_len = 0;
    return 0;
}

static int64_t read_head_v6(struct clp_nettrace *r)
{
    if (r->head_len < 4)
        return 4;
    uint32_t word = head_u32(r, 0), kind = word >> 24;
    if (kind == CLP_NT_END) {
        r->state = CLP_NT_DONE;
        return 0;
    }
    return begin_body(r, kind < CLP_NT_UNKNOWN ? (enum clp_nt_kind)kind : CLP_NT_UNKNOWN,
                      word & 0xffffffu);
}

static enum clp_nt_kind kind_of(const uint8_t *type, size_t len)
{
    static const struct {
        const char *name;
        enum clp_nt_kind kind;
    } kinds[] = {
        {"Trace", CLP_NT_TRACE},
        {"EventBlock", CLP_NT_EVENTS},
        {"StackBlock", CLP_NT_STACKS},
        {"MetadataBlock", CLP_NT_METADATA},
        {"SPBlock", CLP_NT_SEQUENCE_POINT},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(kinds); i++)
        if (strlen(kinds[i].name) == len && memcmp(kinds[i].name, type, len) == 0)
            return kinds[i].kind;
    return CLP_NT_UNKNOWN;
}

/* [end tag of the object before] begin begin null | version, oldest reader, length of the type's
 * name, the name | end | size, padding to 4 bytes from the stream's start. */
static int64_t read_head_v4(struct clp_nettrace *r)
{
    size_t at = r->inside;
    if (r->head_len < at + 1)
        return (int64_t)at + 1;
    if (r->inside && r->head[0] != TAG_END)
        return break_off(r, "a block does not end where its size says");
    if (r->head[at] == TAG_NULL) {
        r->state = CLP_NT_DONE;
        return 0;
    }
    if (r->head_len < at + 15)
        return (int64_t)at + 15;
    const uint8_t *tags = r->head + at;
    uint32_t version = head_u32(r, at + 3), name = head_u32(r, at + 11);
    if (tags[0] != TAG_BEGIN || tags[1] != TAG_BEGIN || tags[2] != TAG_NULL || name > V4_TYPE_MAX)
        return break_off(r, "a block begins with something else");
    size_t type_at = at + 15, size_at = type_at + name + 1;
    if (r->head_len < size_at)
        return (int64_t)size_at;
    if (r->head[size_at - 1] != TAG_END)
        return break_off(r, "a block's type is malformed");
    enum clp_nt_kind kind = kind_of(r->head + type_at, name);
    if (kind == CLP_NT_TRACE) {
        if (version < 4 || version > 5 || r->info.pointer_bytes)
            return break_off(r, version < 4 ? "it is of a format version older than 4"
                                            : "its description of the trace is not understood");
        r->info.version = version;
        return begin_body(r, kind, V4_TRACE_BYTES);
    }
    if (r->head_len < size_at + 4)
        return (int64_t)size_at + 4;
    size_t padding = (size_t)((0 - (r->offset - r->head_len + size_at + 4)) & 3);
    if (r->head_len < size_at + 4 + padding)
        return (int64_t)(size_at + 4 + padding);
    return begin_body(r, kind, head_u32(r, size_at));
}

static int64_t read_head(struct clp_nettrace *r)
{
    if (r->state == CLP_NT_MAGIC)
        return read_magic(r);
    return r->info.version >= 6 ? read_head_v6(r) : read_head_v4(r);
}

/* ---- feeding ------------------------------------------------------------------------------- */

static size_t take_head(struct clp_nettrace *r, const uint8_t *p, size_t len, int *ret_error)
{
    size_t taken = 0;
    for (;;) {
        int64_t want = read_head(r);
        if (want <= 0) {
            *ret_error = (int)want;
            return taken;
        }
        size_t n = CLP_MIN((size_t)want - r->head_len, len - taken);
        if (n == 0)
            return taken;
        memcpy(r->head + r->head_len, p + taken, n);
        r->head_len += n;
        r->offset += n;
        taken += n;
    }
}

static size_t take_body(struct clp_nettrace *r, const uint8_t *p, size_t len, int *ret_error)
{
    size_t n = CLP_MIN(r->body_size - r->body->len, len);
    if (n > 0)
        memcpy(r->body->data + r->body->len, p, n);
    r->body->len += (uint32_t)n;
    r->offset += n;
    if (r->body->len == r->body_size)
        *ret_error = end_body(r);
    return n;
}

int clp_nettrace_feed(struct clp_nettrace *r, const void *data, size_t len)
{
    const uint8_t *p = data;
    int e = 0;
    if (r->state == CLP_NT_BROKEN)
        return -EPROTO;
    while (e == 0 && (len > 0 || (r->state == CLP_NT_BODY && r->body_size == r->body->len))) {
        if (r->state == CLP_NT_DONE || r->state == CLP_NT_BROKEN)
            break;
        size_t n = r->state == CLP_NT_BODY ? take_body(r, p, len, &e) : take_head(r, p, len, &e);
        p += n;
        len -= n;
    }
    r->counts.bytes = r->offset;
    return e;
}

void clp_nettrace_finish(struct clp_nettrace *r)
{
    clp_nt_release_all(r);
}

bool clp_nettrace_is_complete(const struct clp_nettrace *r)
{
    return r->state == CLP_NT_DONE;
}

const char *clp_nettrace_problem(const struct clp_nettrace *r)
{
    return r->problem ? r->problem : "";
}

const struct clp_nettrace_info *clp_nettrace_info(const struct clp_nettrace *r)
{
    return &r->info;
}

const struct clp_nettrace_counts *clp_nettrace_counts(const struct clp_nettrace *r)
{
    return &r->counts;
}

uint64_t clp_nettrace_unix_ns(const struct clp_nettrace *r, uint64_t ticks)
{
    __int128 since = (__int128)ticks - (__int128)r->info.sync_ticks;
    __int128 ns = since * (int64_t)CLP_NSEC_PER_SEC / (int64_t)CLP_MAX(r->info.frequency, 1u);
    return (uint64_t)((__int128)r->info.sync_unix_ms * (int64_t)CLP_NSEC_PER_MSEC + ns);
}

uint64_t clp_nettrace_given_ticks(const struct clp_nettrace *r)
{
    return r->given_ticks;
}

size_t clp_nettrace_bytes(const struct clp_nettrace *r)
{
    return sizeof(*r) + r->block_bytes + r->held_cap * sizeof(*r->held) +
           (r->key_cap + (size_t)r->key_to_cap) * sizeof(*r->keys) + r->run_cap * sizeof(*r->runs) +
           r->frame_cap * sizeof(*r->frames) + r->stack_cap * sizeof(*r->stacks) +
           r->label_cap * sizeof(*r->labels) + r->thread_cap * sizeof(*r->threads) +
           r->meta_cap * sizeof(*r->metas) + r->arena.mapped_bytes;
}

/* ---- life ---------------------------------------------------------------------------------- */

int clp_nettrace_new(const struct clp_nettrace_config *config, struct clp_nettrace **ret)
{
    struct clp_nettrace *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->config = *config;
    r->info.frequency = CLP_NSEC_PER_SEC;
    clp_arena_init(&r->arena, CLP_NETTRACE_METADATA_MAX_BYTES);
    clp_map_init(&r->thread_map, CLP_NETTRACE_THREADS_MAX);
    *ret = r;
    return 0;
}

static void free_held_blocks(struct clp_nettrace *r)
{
    for (uint32_t i = 0; i < r->held_count; i++) {
        struct clp_nt_block *b = r->held[r->keys[i].at].block;
        if (--b->held == 0)
            free_block(r, b);
    }
}

struct clp_nettrace *clp_nettrace_free(struct clp_nettrace *r)
{
    if (!r)
        return NULL;
    free_held_blocks(r);
    if (r->body)
        free_block(r, r->body);
    for (unsigned c = 0; c < CLP_NT_BLOCK_CLASSES; c++)
        for (struct clp_nt_block *b = r->pool[c], *next; b; b = next) {
            next = b->next;
            free_block(r, b);
        }
    clp_arena_done(&r->arena);
    clp_map_done(&r->thread_map);
    free(r->metas);
    free(r->threads);
    free(r->stacks);
    free(r->frames);
    free(r->labels);
    free(r->held);
    free(r->keys);
    free(r->keys_to);
    free(r->runs);
    free(r);
    return NULL;
}
