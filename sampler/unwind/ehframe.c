#include "sampler/unwind/ehframe.h"

#include <errno.h>
#include <string.h>

enum {
    PE_ABSPTR = 0x00,
    PE_ULEB = 0x01,
    PE_UDATA2 = 0x02,
    PE_UDATA4 = 0x03,
    PE_UDATA8 = 0x04,
    PE_SLEB = 0x09,
    PE_SDATA2 = 0x0a,
    PE_SDATA4 = 0x0b,
    PE_SDATA8 = 0x0c,
    PE_FORMAT = 0x0f,
    PE_PCREL = 0x10,
    PE_APPLICATION = 0x70,
    PE_INDIRECT = 0x80,
    PE_OMIT = 0xff,
};

static int encoded_number(struct clp_bytes *b, uint8_t format, uint64_t *ret)
{
    switch (format) {
    case PE_ABSPTR:
    case PE_UDATA8:
    case PE_SDATA8:
        *ret = clp_bytes_u64(b);
        return 0;
    case PE_ULEB:
        *ret = clp_bytes_uleb(b);
        return 0;
    case PE_SLEB:
        *ret = (uint64_t)clp_bytes_sleb(b);
        return 0;
    case PE_UDATA2:
        *ret = clp_bytes_u16(b);
        return 0;
    case PE_UDATA4:
        *ret = clp_bytes_u32(b);
        return 0;
    case PE_SDATA2:
        *ret = (uint64_t)(int64_t)(int16_t)clp_bytes_u16(b);
        return 0;
    case PE_SDATA4:
        *ret = (uint64_t)(int64_t)(int32_t)clp_bytes_u32(b);
        return 0;
    default:
        return -EBADMSG;
    }
}

int clp_eh_pointer(struct clp_bytes *b, uint8_t enc, uint64_t vaddr, uint64_t *ret)
{
    uint64_t v;
    uint8_t application = enc & PE_APPLICATION;
    if (enc == PE_OMIT || (enc & PE_INDIRECT) || (application && application != PE_PCREL) ||
        encoded_number(b, enc & PE_FORMAT, &v) < 0 || b->bad)
        return -EBADMSG;
    *ret = application == PE_PCREL ? v + vaddr : v;
    return 0;
}

static uint64_t address_of(const struct clp_eh_section *s, const struct clp_bytes *b)
{
    return s->vaddr + (uint64_t)(b->at - s->bytes);
}

/* The letters after 'z'; an unknown one ends the list, its data is skipped by the length. */
static void parse_augmentation(const struct clp_eh_section *s, const char *letters,
                               struct clp_bytes data, struct clp_cie *c)
{
    for (; *letters && !data.bad; letters++) {
        uint64_t ignored;
        uint8_t enc;
        switch (*letters) {
        case 'R':
            c->pointer_enc = clp_bytes_u8(&data);
            break;
        case 'L':
            (void)clp_bytes_u8(&data);
            break;
        case 'P': /* the personality may be indirect: only its length matters here */
            enc = clp_bytes_u8(&data) & PE_FORMAT;
            if (clp_eh_pointer(&data, enc, address_of(s, &data), &ignored) < 0)
                return;
            break;
        case 'S':
            c->signal_frame = true;
            break;
        case 'B':
            break;
        default:
            return;
        }
    }
}

/* `b` stands behind the CIE's id. */
static void parse_cie(const struct clp_eh_section *s, struct clp_bytes b, size_t offset,
                      struct clp_cie *c)
{
    *c = (struct clp_cie){.offset = offset, .pointer_enc = PE_ABSPTR};
    uint8_t version = clp_bytes_u8(&b);
    const char *letters = clp_bytes_cstr(&b);
    if (!letters || (version != 1 && version != 3 && version != 4))
        return;
    if (version == 4 && clp_bytes_u16(&b) != 8) /* address size 8, segment selector size 0 */
        return;
    c->code_align = clp_bytes_uleb(&b);
    c->data_align = clp_bytes_sleb(&b);
    c->ra_reg = version == 1 ? clp_bytes_u8(&b) : clp_bytes_uleb(&b);
    if (letters[0] == 'z') {
        uint64_t len = clp_bytes_uleb(&b);
        const uint8_t *data = clp_bytes_take(&b, len);
        if (!data)
            return;
        c->has_augmentation_data = true;
        parse_augmentation(s, letters + 1, clp_bytes_of(data, len), c);
    } else if (letters[0]) {
        return; /* "eh" and the like: the layout of what follows is not known */
    }
    c->program = b;
    c->valid = !b.bad;
}

/* The record at `offset`: its content behind the length. 0 at the terminator or past the end. */
static int record_at(const struct clp_eh_section *s, size_t offset, struct clp_bytes *ret,
                     bool *ret_wide, size_t *ret_next)
{
    struct clp_bytes b = clp_bytes_of(s->bytes + offset, s->len - offset);
    uint64_t len = clp_bytes_u32(&b);
    *ret_wide = len == UINT32_MAX;
    if (*ret_wide)
        len = clp_bytes_u64(&b);
    if (b.bad || len == 0 || len > clp_bytes_left(&b))
        return 0;
    *ret = clp_bytes_of(b.at, len);
    *ret_next = (size_t)(b.at - s->bytes) + len;
    return 1;
}

static void load_cie(const struct clp_eh_section *s, size_t offset, struct clp_cie *c)
{
    struct clp_bytes b;
    bool wide;
    size_t next;
    if (c->offset == offset && c->valid)
        return;
    *c = (struct clp_cie){.offset = offset};
    if (offset >= s->len || !record_at(s, offset, &b, &wide, &next))
        return;
    uint64_t id = wide ? clp_bytes_u64(&b) : clp_bytes_u32(&b);
    if (id == 0 && !b.bad)
        parse_cie(s, b, offset, c);
}

/* `b` stands behind the CIE pointer. */
static int parse_fde(const struct clp_eh_section *s, struct clp_bytes b, const struct clp_cie *c,
                     struct clp_fde *ret)
{
    uint64_t start, len;
    if (clp_eh_pointer(&b, c->pointer_enc, address_of(s, &b), &start) < 0 ||
        clp_eh_pointer(&b, c->pointer_enc & PE_FORMAT, 0, &len) < 0)
        return -EBADMSG;
    if (c->has_augmentation_data)
        (void)clp_bytes_take(&b, clp_bytes_uleb(&b));
    if (b.bad || len == 0 || start + len < start)
        return -EBADMSG;
    *ret = (struct clp_fde){.start = start, .end = start + len, .program = b};
    return 0;
}

int clp_eh_next(const struct clp_eh_section *s, size_t *offset, struct clp_cie *cie,
                struct clp_fde *ret, size_t *ret_offset)
{
    while (*offset < s->len) {
        struct clp_bytes b;
        bool wide;
        size_t at = *offset;
        if (!record_at(s, at, &b, &wide, offset))
            return 0;
        uint64_t id_at = (uint64_t)(b.at - s->bytes);
        uint64_t id = wide ? clp_bytes_u64(&b) : clp_bytes_u32(&b);
        if (b.bad || id == 0 || id > id_at)
            continue; /* a CIE, or a pointer out of the section */
        load_cie(s, (size_t)(id_at - id), cie);
        if (!cie->valid || parse_fde(s, b, cie, ret) < 0)
            continue;
        *ret_offset = at;
        return 1;
    }
    return 0;
}
