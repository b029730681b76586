#include "base/core/bytes.h"

#include <string.h>

struct clp_bytes clp_bytes_of(const void *data, size_t len)
{
    const uint8_t *p = data;
    return (struct clp_bytes){.at = p, .end = p ? p + len : p, .bad = false};
}

size_t clp_bytes_left(const struct clp_bytes *b)
{
    return (size_t)(b->end - b->at);
}

const uint8_t *clp_bytes_take(struct clp_bytes *b, size_t n)
{
    if (b->bad || n > clp_bytes_left(b)) {
        b->bad = true;
        return NULL;
    }
    const uint8_t *p = b->at;
    b->at += n;
    return p;
}

static uint64_t take_number(struct clp_bytes *b, size_t n)
{
    uint64_t v = 0;
    const uint8_t *p = clp_bytes_take(b, n);
    if (p)
        memcpy(&v, p, n);
    return v;
}

uint8_t clp_bytes_u8(struct clp_bytes *b)
{
    return (uint8_t)take_number(b, 1);
}

uint16_t clp_bytes_u16(struct clp_bytes *b)
{
    return (uint16_t)take_number(b, 2);
}

uint32_t clp_bytes_u32(struct clp_bytes *b)
{
    return (uint32_t)take_number(b, 4);
}

uint64_t clp_bytes_u64(struct clp_bytes *b)
{
    return take_number(b, 8);
}

uint64_t clp_bytes_uleb(struct clp_bytes *b)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        uint8_t byte = clp_bytes_u8(b);
        if (b->bad)
            return 0;
        if (shift < 64)
            v |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return v;
    }
    b->bad = true;
    return 0;
}

int64_t clp_bytes_sleb(struct clp_bytes *b)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 70;) {
        uint8_t byte = clp_bytes_u8(b);
        if (b->bad)
            return 0;
        if (shift < 64)
            v |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
        if (!(byte & 0x80)) {
            if (shift < 64 && (byte & 0x40))
                v |= ~0ull << shift;
            return (int64_t)v;
        }
    }
    b->bad = true;
    return 0;
}

const char *clp_bytes_cstr(struct clp_bytes *b)
{
    const uint8_t *nul = b->bad ? NULL : memchr(b->at, 0, clp_bytes_left(b));
    if (!nul) {
        b->bad = true;
        return NULL;
    }
    return (const char *)clp_bytes_take(b, (size_t)(nul - b->at) + 1);
}
