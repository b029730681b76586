#include "sampler/unwind/r2r.h"

#include <errno.h>
#include <string.h>

#include "base/core/bytes.h"
#include "sampler/unwind/nativefmt.h"
#include "sampler/unwind/pe.h"
#include "sampler/unwind/unwindinfo.h"

#define MACHINE_X64_LINUX (0x8664 ^ 0x7b79)
#define FUNCTION_BYTES 12u
#define FUNCTIONS_BYTES_MAX (48u << 20) /* 4 million functions; CoreLib has 50,000 */
#define DEBUG_INFO_BYTES_MAX (128u << 20)
#define COLD_BYTES_MAX (16u << 20)
#define GAP_BYTES 32u      /* more than alignment between two functions is no code of ours */
#define FRAMES_MAX 0x0fffu /* measured: up to 290 */

enum { INFO_FRAME = 0x3fff, INFO_NONE = 0x3fff, INFO_PART = 0x4000, INFO_COLD = 0x8000 };

/* Per entry 6 bytes. An entry with INFO_PART belongs to the method of the nearest entry before it
 * that has none of the marks; one with INFO_COLD to that of the cold map. */
struct clp_r2r_table {
    size_t bytes;
    uint32_t image_bytes;
    uint32_t entries, frames, colds;
    uint32_t end_rva;
    const uint32_t *start;
    const uint16_t *info;
    const struct clp_managed_frame *frame;
    const uint32_t (*cold)[2]; /* {start of a cold part, start of its method} */
};

struct function {
    uint32_t start, end, unwind;
};

#define HASH_SLOTS 65536u

struct build {
    const struct clp_pe *pe;
    struct clp_scratch functions, debug, cold, memory;
    uint32_t count, colds, first_cold;
    struct clp_native_array methods;

    struct clp_managed_frame *frame;
    uint32_t frames;
    struct {
        uint32_t unwind; /* 0: empty */
        uint32_t frame;
    } * hash;
};

static struct function function_at(const struct build *b, uint32_t i)
{
    struct function f;
    memcpy(&f, b->functions.at + (size_t)i * FUNCTION_BYTES, sizeof(f));
    return f;
}

/* ---- frames -------------------------------------------------------------------------------- */

static bool same_frame(const struct clp_managed_frame *a, const struct clp_managed_frame *b)
{
    return a->base == b->base && a->prologue_bytes == b->prologue_bytes &&
           a->push_count == b->push_count && a->saved == b->saved && a->funclet == b->funclet &&
           a->exact == b->exact && a->frame_bytes == b->frame_bytes && a->lea_disp == b->lea_disp;
}

static uint32_t add_frame(struct build *b, const struct clp_managed_frame *f)
{
    for (uint32_t i = 0; i < b->frames; i++)
        if (same_frame(&b->frame[i], f))
            return i;
    if (b->frames == FRAMES_MAX)
        return 0; /* the inexact frame */
    b->frame[b->frames] = *f;
    return b->frames++;
}

static uint32_t decode_frame(struct build *b, uint32_t rva, bool funclet)
{
    uint8_t raw[CLP_UNWIND_INFO_MAX];
    struct clp_managed_frame f;
    uint32_t len = sizeof(raw);
    while (len > 0 && clp_pe_read(b->pe, rva, raw, len) < 0)
        len /= 2; /* near the end of its section */
    clp_unwind_info_decode(raw, len, &f);
    f.funclet = funclet;
    return add_frame(b, &f);
}

/* Few unwind records serve all functions, so each is read once. */
static uint32_t frame_of(struct build *b, uint32_t unwind, bool funclet)
{
    uint32_t key = unwind * 2 + (funclet ? 1 : 0);
    uint32_t at = (key * 0x9e3779b1u) >> 16;
    for (uint32_t tries = 0; tries < 64; tries++, at = (at + 1) % HASH_SLOTS) {
        if (b->hash[at].unwind == key)
            return b->hash[at].frame;
        if (b->hash[at].unwind != 0)
            continue;
        b->hash[at].frame = decode_frame(b, unwind, funclet);
        b->hash[at].unwind = key;
        return b->hash[at].frame;
    }
    return decode_frame(b, unwind, funclet);
}

/* ---- building ------------------------------------------------------------------------------ */

static int check_order(const struct build *b)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        struct function f = function_at(b, i);
        if (f.start < last || f.end <= f.start)
            return -EBADMSG;
        last = f.end;
    }
    return 0;
}

static int load_functions(struct build *b, uint32_t header)
{
    uint32_t rva, bytes;
    uint64_t at;
    int r = clp_pe_r2r_section(b->pe, header, CLP_R2R_RUNTIME_FUNCTIONS, &rva, &bytes);
    if (r < 0)
        return r == -ENOENT ? -ENODATA : r;
    bytes -= bytes % FUNCTION_BYTES;
    if (bytes == 0)
        return -ENODATA;
    r = clp_pe_offset(b->pe, rva, bytes, &at);
    if (r == 0)
        r = clp_scratch_load(b->pe->source, at, bytes, FUNCTIONS_BYTES_MAX, &b->functions);
    if (r < 0)
        return r;
    b->count = bytes / FUNCTION_BYTES;
    return check_order(b);
}

/* The debug info of a method hangs on the number of its first runtime function; funclets and cold
 * parts have none.  So this array tells exactly where methods begin (checked in the tests against
 * the exception clauses of whole frameworks). */
static int load_methods(struct build *b, uint32_t header)
{
    uint32_t rva, bytes;
    uint64_t at;
    int r = clp_pe_r2r_section(b->pe, header, CLP_R2R_DEBUG_INFO, &rva, &bytes);
    if (r < 0)
        return r == -ENOENT ? -EBADMSG : r;
    r = clp_pe_offset(b->pe, rva, bytes, &at);
    if (r == 0)
        r = clp_scratch_load(b->pe->source, at, bytes, DEBUG_INFO_BYTES_MAX, &b->debug);
    if (r == 0)
        r = clp_native_array_open(b->debug.at, b->debug.bytes, &b->methods);
    return r;
}

/* Pairs {number of a cold runtime function, number of its method's hot one}; cold ones come last.
 */
static int load_cold(struct build *b, uint32_t header)
{
    uint32_t rva, bytes;
    uint64_t at;
    b->first_cold = b->count;
    int r = clp_pe_r2r_section(b->pe, header, CLP_R2R_HOT_COLD_MAP, &rva, &bytes);
    if (r < 0 || bytes < 8)
        return r == -ENOENT || r == 0 ? 0 : r;
    r = clp_pe_offset(b->pe, rva, bytes, &at);
    if (r == 0)
        r = clp_scratch_load(b->pe->source, at, bytes, COLD_BYTES_MAX, &b->cold);
    if (r < 0)
        return r;
    memcpy(&b->first_cold, b->cold.at, sizeof(b->first_cold));
    b->colds = bytes / 8;
    return b->first_cold < b->count ? 0 : -EBADMSG;
}

struct writing {
    uint32_t *start; /* NULL: count only */
    uint16_t *info;
    uint32_t n;
};

static void write_entry(struct writing *w, uint32_t start, uint32_t info)
{
    if (w->start) {
        w->start[w->n] = start;
        w->info[w->n] = (uint16_t)info;
    }
    w->n++;
}

static void write_entries(struct build *b, struct writing *w)
{
    for (uint32_t i = 0; i < b->count; i++) {
        struct function f = function_at(b, i);
        uint32_t info = 0;
        if (w->start) {
            bool cold = i >= b->first_cold;
            bool part = !cold && !clp_native_array_has(&b->methods, i);
            info = frame_of(b, f.unwind, part) | (part ? INFO_PART : 0) | (cold ? INFO_COLD : 0);
        }
        write_entry(w, f.start, info);
        if (i + 1 < b->count && function_at(b, i + 1).start - f.end > GAP_BYTES)
            write_entry(w, f.end, INFO_NONE);
    }
}

static void write_cold(const struct build *b, uint32_t (*out)[2])
{
    for (uint32_t i = 0; i < b->colds; i++) {
        uint32_t pair[2];
        memcpy(pair, b->cold.at + (size_t)i * 8, sizeof(pair));
        for (int k = 0; k < 2; k++)
            out[i][k] = pair[k] < b->count ? function_at(b, pair[k]).start : 0;
    }
}

static int write_table(struct build *b, struct clp_arena *arena, const struct clp_r2r_table **ret)
{
    struct writing w = {0};
    write_entries(b, &w);
    uint32_t entries = w.n;
    size_t head = CLP_ALIGN_UP(sizeof(struct clp_r2r_table), 16);
    size_t starts = CLP_ALIGN_UP((size_t)entries * sizeof(uint32_t), 16);
    size_t infos = CLP_ALIGN_UP((size_t)entries * sizeof(uint16_t), 16);
    size_t colds = CLP_ALIGN_UP((size_t)b->colds * 8, 16);
    uint8_t *at = clp_arena_alloc(arena, head + starts + infos + colds);
    if (!at)
        return -ENOMEM;
    struct clp_r2r_table *t = (struct clp_r2r_table *)at;
    w = (struct writing){.start = (uint32_t *)(at + head),
                         .info = (uint16_t *)(at + head + starts)};
    write_entries(b, &w);
    write_cold(b, (uint32_t(*)[2])(at + head + starts + infos));
    struct clp_managed_frame *frame = clp_arena_alloc(arena, b->frames * sizeof(*frame));
    if (!frame)
        return -ENOMEM;
    memcpy(frame, b->frame, b->frames * sizeof(*frame));
    *t = (struct clp_r2r_table){.bytes = head + starts + infos + colds + b->frames * sizeof(*frame),
                                .image_bytes = b->pe->image_bytes,
                                .entries = entries,
                                .frames = b->frames,
                                .colds = b->colds,
                                .end_rva = function_at(b, b->count - 1).end,
                                .start = w.start,
                                .info = w.info,
                                .frame = frame,
                                .cold = (const uint32_t(*)[2])(at + head + starts + infos)};
    *ret = t;
    return 0;
}

static int init_frames(struct build *b)
{
    size_t frames = FRAMES_MAX * sizeof(struct clp_managed_frame);
    int r = clp_scratch_alloc(frames + HASH_SLOTS * sizeof(*b->hash), &b->memory);
    if (r < 0)
        return r;
    b->frame = (struct clp_managed_frame *)b->memory.at;
    b->hash = (void *)(b->memory.at + frames);
    b->frame[0] = (struct clp_managed_frame){.base = CLP_BASE_RBP};
    b->frames = 1;
    return 0;
}

static void composite_name(const struct clp_pe *pe, uint32_t rva, uint32_t bytes, char *out,
                           size_t cap)
{
    uint32_t len = (uint32_t)CLP_MIN((size_t)bytes, cap ? cap - 1 : 0);
    if (cap == 0)
        return;
    if (clp_pe_read(pe, rva, out, len) < 0)
        len = 0;
    out[len] = 0;
}

static int build(const struct clp_source *s, struct clp_arena *arena,
                 const struct clp_r2r_table **ret, char *ret_composite, size_t composite_cap)
{
    struct clp_pe pe;
    struct build b = {.pe = &pe};
    uint32_t header, rva, bytes;
    int r = clp_pe_open(s, &pe);
    if (r == 0 && pe.machine != MACHINE_X64_LINUX)
        r = -ENODATA;
    if (r == 0)
        r = clp_pe_r2r_header(&pe, &header);
    if (r == 0 && clp_pe_r2r_section(&pe, header, CLP_R2R_OWNER_COMPOSITE, &rva, &bytes) == 0) {
        if (ret_composite)
            composite_name(&pe, rva, bytes, ret_composite, composite_cap);
        r = -ENODATA;
    }
    if (r == 0)
        r = load_functions(&b, header);
    if (r == 0)
        r = load_methods(&b, header);
    if (r == 0)
        r = load_cold(&b, header);
    if (r == 0)
        r = init_frames(&b);
    if (r == 0)
        r = write_table(&b, arena, ret);
    clp_scratch_done(&b.functions);
    clp_scratch_done(&b.debug);
    clp_scratch_done(&b.cold);
    clp_scratch_done(&b.memory);
    return r;
}

int clp_r2r_table_build(int fd, struct clp_arena *arena, const struct clp_r2r_table **ret,
                        char *ret_composite, size_t composite_cap)
{
    struct clp_source s;
    int r = clp_source_open_fd(fd, &s);
    return r < 0 ? r : build(&s, arena, ret, ret_composite, composite_cap);
}

int clp_r2r_table_build_part(int fd, uint64_t from, struct clp_arena *arena,
                             const struct clp_r2r_table **ret)
{
    struct clp_source s;
    int r = clp_source_open_part(fd, from, &s);
    return r < 0 ? r : build(&s, arena, ret, NULL, 0);
}

int clp_r2r_table_build_mem(const void *pe, size_t len, struct clp_arena *arena,
                            const struct clp_r2r_table **ret, char *ret_composite,
                            size_t composite_cap)
{
    struct clp_source s = clp_source_of(pe, len);
    return build(&s, arena, ret, ret_composite, composite_cap);
}

size_t clp_r2r_table_bytes(const struct clp_r2r_table *t)
{
    return t->bytes;
}

uint32_t clp_r2r_image_bytes(const struct clp_r2r_table *t)
{
    return t->image_bytes;
}

/* ---- looking up ---------------------------------------------------------------------------- */

static uint32_t method_of_cold(const struct clp_r2r_table *t, uint32_t start)
{
    uint32_t low = 0, high = t->colds;
    while (low < high) { /* the last cold part that starts at or before */
        uint32_t mid = low + (high - low) / 2;
        if (t->cold[mid][0] <= start)
            low = mid + 1;
        else
            high = mid;
    }
    return low > 0 ? t->cold[low - 1][1] : start;
}

static uint32_t method_of(const struct clp_r2r_table *t, uint32_t at)
{
    if (t->info[at] & INFO_COLD)
        return method_of_cold(t, t->start[at]);
    while (at > 0 && (t->info[at] & INFO_PART || (t->info[at] & INFO_FRAME) == INFO_NONE))
        at--;
    return t->start[at];
}

int clp_r2r_find(const struct clp_r2r_table *t, uint32_t rva, struct clp_r2r_function *ret)
{
    const uint32_t *at = t->start;
    uint32_t n = t->entries;
    if (rva >= t->end_rva)
        return -ENOENT;
    while (n > 0) {
        uint32_t half = n / 2;
        bool beyond = at[half] > rva;
        at = beyond ? at : at + half + 1;
        n = beyond ? half : n - half - 1;
    }
    if (at == t->start)
        return -ENOENT;
    uint32_t i = (uint32_t)(at - t->start) - 1;
    uint32_t frame = t->info[i] & INFO_FRAME;
    if (frame == INFO_NONE)
        return -ENOENT;
    *ret = (struct clp_r2r_function){
        .start_rva = t->start[i],
        .end_rva = i + 1 < t->entries ? t->start[i + 1] : t->end_rva,
        .method_rva = method_of(t, i),
        .frame = t->frame[frame],
    };
    return 0;
}
