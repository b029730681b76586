#include "sampler/inproc/il_filters.h"

#include "base/core/bytes.h"

#include <errno.h>

/* COR_DEBUG_IL_TO_NATIVE_MAP_TYPES: what stands in place of an IL offset. */
#define IL_PROLOG 0xfffffffeu

/* ECMA-335 II.25.4.3 to II.25.4.6 */
enum {
    FORMAT_MASK = 0x3,
    FORMAT_FAT = 0x3,
    HEADER_MORE_SECTIONS = 0x8,
    SECTION_EH = 0x1,
    SECTION_FAT = 0x40,
    SECTION_MORE = 0x80,
    CLAUSE_FILTER = 0x1,
    SMALL_CLAUSE_BYTES = 12,
    FAT_CLAUSE_BYTES = 24,
};

int clp_il_sections_at(const uint8_t header[CLP_IL_HEADER_BYTES], size_t body_bytes, uint32_t *ret)
{
    struct clp_bytes b = clp_bytes_of(header, CLP_MIN(body_bytes, (size_t)CLP_IL_HEADER_BYTES));
    uint16_t flags = clp_bytes_u16(&b);
    (void)clp_bytes_u16(&b); /* stack depth */
    uint64_t code_bytes = clp_bytes_u32(&b);
    *ret = 0;
    if ((flags & FORMAT_MASK) != FORMAT_FAT)
        return 0; /* a tiny header: no sections */
    if (b.bad)
        return -EBADMSG;
    if (!(flags & HEADER_MORE_SECTIONS))
        return 0;
    uint64_t at = CLP_ALIGN_UP(CLP_IL_HEADER_BYTES + code_bytes, 4);
    if (at >= body_bytes)
        return -EBADMSG;
    *ret = (uint32_t)at;
    return 0;
}

static void take_clause(struct clp_bytes *b, bool fat, struct clp_il_range *ret, int *count)
{
    uint32_t flags = fat ? clp_bytes_u32(b) : clp_bytes_u16(b);
    (void)clp_bytes_take(b, fat ? 8 : 3); /* the try block */
    uint32_t handler = fat ? clp_bytes_u32(b) : clp_bytes_u16(b);
    (void)clp_bytes_take(b, fat ? 4 : 1); /* its length */
    uint32_t filter = clp_bytes_u32(b);
    /* A filter ends where its handler begins (ECMA-335 I.12.4.2.1). */
    if (b->bad || !(flags & CLAUSE_FILTER) || filter >= handler)
        return;
    if (*count < (int)CLP_IL_FILTERS_MAX)
        ret[*count] = (struct clp_il_range){filter, handler};
    ++*count;
}

static bool take_section(struct clp_bytes *b, struct clp_il_range *ret, int *count)
{
    size_t before = clp_bytes_left(b) % 4;
    uint32_t head = clp_bytes_u32(b);
    bool fat = head & SECTION_FAT;
    uint32_t bytes = fat ? head >> 8 : head >> 8 & 0xff;
    uint32_t clauses = (CLP_MAX(bytes, 4) - 4) / (fat ? FAT_CLAUSE_BYTES : SMALL_CLAUSE_BYTES);
    if (!(head & SECTION_EH))
        (void)clp_bytes_take(b, CLP_MAX(bytes, 4) - 4);
    for (uint32_t i = 0; (head & SECTION_EH) && i < clauses && !b->bad; i++)
        take_clause(b, fat, ret, count);
    while (clp_bytes_left(b) % 4 != before && !b->bad)
        (void)clp_bytes_u8(b);
    return head & SECTION_MORE;
}

int clp_il_filters(const void *sections, size_t len, struct clp_il_range ret[CLP_IL_FILTERS_MAX])
{
    struct clp_bytes b = clp_bytes_of(sections, len);
    int count = 0;
    while (take_section(&b, ret, &count) && !b.bad)
        continue;
    return b.bad ? -EBADMSG : count;
}

static bool is_filter(const struct clp_il_range *filters, int count, uint32_t il)
{
    for (int i = 0; i < count; i++)
        if (il >= filters[i].start && il < filters[i].end)
            return true;
    return false;
}

/* The compiler puts each handler and filter behind the method, with a prologue of its own: between
 * two prologues all is of one kind. */
bool clp_il_in_filter(const struct clp_il_range *filters, int filter_count,
                      const struct clr_il_map *map, uint32_t count, uint32_t offset)
{
    uint32_t start = 0, end = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        if (map[i].il != IL_PROLOG)
            continue;
        if (map[i].start <= offset)
            start = CLP_MAX(start, map[i].start);
        else
            end = CLP_MIN(end, map[i].start);
    }
    for (uint32_t i = 0; i < count; i++)
        if (map[i].start >= start && map[i].start < end &&
            is_filter(filters, filter_count, map[i].il))
            return true;
    return false;
}
