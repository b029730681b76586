/* Stacks and label lists between two sequence points. Frames are widened and aligned once, here. */
#include "sampler/nettrace/parts.h"

#include "base/vec.h"

#include <errno.h>
#include <string.h>

void clp_nt_forget_stacks(struct clp_nettrace *r)
{
    r->stack_count = r->frame_count = 0;
    r->label_count = 0;
}

/* A table whose ids run upward: a block that does not go on where the last one ended begins anew;
 * what is held refers to the old one. */
static void begin_at(struct clp_nettrace *r, uint32_t first, uint32_t *first_id, uint32_t *count)
{
    if (*count > 0 && first != *first_id + *count) {
        clp_nt_release_all(r);
        *count = 0;
    }
    if (*count == 0)
        *first_id = first;
}

static void copy_frames(struct clp_nettrace *r, const uint8_t *p, uint32_t n)
{
    if (n == 0)
        return;
    uint64_t *to = r->frames + r->frame_count;
    if (r->info.pointer_bytes == 8) {
        memcpy(to, p, (size_t)n * 8);
    } else {
        for (uint32_t i = 0; i < n; i++) {
            uint32_t v;
            memcpy(&v, p + (size_t)i * 4, 4);
            to[i] = v;
        }
    }
    r->frame_count += n;
}

static int add_stack(struct clp_nettrace *r, const uint8_t *p, uint32_t bytes)
{
    uint32_t n = bytes / r->info.pointer_bytes;
    int e = CLP_VEC_GROW(r->stacks, r->stack_cap, r->stack_count + 1, CLP_NETTRACE_STACKS_MAX);
    if (e == 0)
        e = CLP_VEC_GROW(r->frames, r->frame_cap, r->frame_count + n, CLP_NETTRACE_FRAMES_MAX);
    if (e == -ENOSPC) {
        r->counts.stacks_refused++;
        n = 0; /* an empty one keeps the numbering, while there is room */
        if (r->stack_count >= r->stack_cap)
            return -ENOSPC;
    } else if (e < 0) {
        return e;
    }
    r->stacks[r->stack_count++] = (struct clp_nt_stack){.first = r->frame_count, .len = n};
    copy_frames(r, p, n);
    return 0;
}

int clp_nt_read_stacks(struct clp_nettrace *r, struct clp_nt_block *b)
{
    struct clp_bytes c = clp_bytes_of(b->data, b->len);
    uint32_t first = clp_bytes_u32(&c), count = clp_bytes_u32(&c);
    if (c.bad)
        return -EPROTO;
    begin_at(r, first, &r->stack_first_id, &r->stack_count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bytes = clp_bytes_u32(&c);
        const uint8_t *p = clp_bytes_take(&c, bytes);
        if (!p)
            return -EPROTO;
        int e = add_stack(r, p, bytes);
        if (e < 0)
            return e == -ENOSPC ? 0 : e;
    }
    return 0;
}

/* ---- label lists (V6) ---------------------------------------------------------------------- */

enum {
    LABEL_ACTIVITY = 1,
    LABEL_RELATED,
    LABEL_TRACE,
    LABEL_SPAN,
    LABEL_TEXT,
    LABEL_NUMBER,
    LABEL_OPCODE,
    LABEL_KEYWORDS,
    LABEL_LEVEL,
    LABEL_VERSION,
    LABEL_LAST = 0x80, /* of its list */
};

static void skip_text(struct clp_bytes *c)
{
    uint64_t n = clp_bytes_uleb(c);
    (void)clp_bytes_take(c, n > SIZE_MAX ? SIZE_MAX : (size_t)n);
}

static void take_guid(struct clp_bytes *c, uint8_t *ret)
{
    const uint8_t *p = clp_bytes_take(c, CLP_NETTRACE_GUID_BYTES);
    if (p)
        memcpy(ret, p, CLP_NETTRACE_GUID_BYTES);
}

static void read_label(struct clp_bytes *c, uint8_t kind, struct clp_nt_labels *to)
{
    switch (kind) {
    case LABEL_ACTIVITY:
        take_guid(c, to->activity);
        break;
    case LABEL_RELATED:
        take_guid(c, to->related);
        break;
    case LABEL_TRACE:
        (void)clp_bytes_take(c, 16);
        break;
    case LABEL_SPAN:
    case LABEL_KEYWORDS:
        (void)clp_bytes_u64(c);
        break;
    case LABEL_TEXT:
        skip_text(c);
        skip_text(c);
        break;
    case LABEL_NUMBER:
        skip_text(c);
        (void)clp_bytes_uleb(c);
        break;
    case LABEL_OPCODE:
    case LABEL_LEVEL:
    case LABEL_VERSION:
        (void)clp_bytes_u8(c);
        break;
    default:
        c->bad = true; /* nothing says how long it is */
    }
}

int clp_nt_read_labels(struct clp_nettrace *r, struct clp_nt_block *b)
{
    struct clp_bytes c = clp_bytes_of(b->data, b->len);
    uint32_t first = clp_bytes_u32(&c), count = clp_bytes_u32(&c);
    if (c.bad)
        return -EPROTO;
    begin_at(r, first, &r->label_first_id, &r->label_count);
    for (uint32_t i = 0; i < count; i++) {
        struct clp_nt_labels l = {0};
        uint8_t kind;
        do {
            kind = clp_bytes_u8(&c);
            read_label(&c, kind & 0x7f, &l);
        } while (!(kind & LABEL_LAST) && !c.bad);
        if (c.bad)
            return -EPROTO;
        int e = CLP_VEC_GROW(r->labels, r->label_cap, r->label_count + 1, CLP_NETTRACE_LABELS_MAX);
        if (e < 0) {
            r->counts.labels_refused++;
            return e == -ENOSPC ? 0 : e;
        }
        r->labels[r->label_count++] = l;
    }
    return 0;
}
