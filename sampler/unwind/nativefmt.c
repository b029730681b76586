#include "sampler/unwind/nativefmt.h"

#include <errno.h>
#include <string.h>

#define BLOCK 16u

/* A number of 1 to 5 bytes; the low bits of the first tell how many. False past the end. */
static bool decode(const uint8_t *bytes, size_t len, size_t *at, uint32_t *ret)
{
    if (*at >= len)
        return false;
    uint8_t first = bytes[*at];
    unsigned extra = first & 1 ? first & 2 ? first & 4 ? first & 8 ? 4 : 3 : 2 : 1 : 0;
    if (extra >= len - *at || (extra == 4 && (first & 16)))
        return false;
    uint32_t v = extra == 4 ? 0 : first >> (extra + 1);
    unsigned shift = extra == 4 ? 0 : 7 - extra;
    for (unsigned i = 1; i <= extra; i++, shift += 8)
        v |= (uint32_t)bytes[*at + i] << shift;
    *at += extra + 1;
    *ret = v;
    return true;
}

int clp_native_array_open(const uint8_t *bytes, size_t len, struct clp_native_array *ret)
{
    uint32_t header;
    size_t at = 0;
    if (!decode(bytes, len, &at, &header))
        return -EBADMSG;
    *ret = (struct clp_native_array){.bytes = bytes,
                                     .len = len,
                                     .base = at,
                                     .count = header >> 2,
                                     .index_shift = (uint8_t)CLP_MIN(header & 3, 2u)};
    return 0;
}

static bool block_start(const struct clp_native_array *a, uint32_t block, size_t *ret)
{
    size_t width = (size_t)1 << a->index_shift;
    size_t at = a->base + block * width;
    uint32_t v = 0;
    if (at > a->len || width > a->len - at)
        return false;
    memcpy(&v, a->bytes + at, width);
    *ret = a->base + v;
    return true;
}

/* Each block of 16 is a binary tree; a node's low bits say which halves it has, a node without both
 * marks stands for the one element that it names. */
bool clp_native_array_has(const struct clp_native_array *a, uint32_t index)
{
    size_t at;
    if (index >= a->count || !block_start(a, index / BLOCK, &at))
        return false;
    for (uint32_t bit = BLOCK / 2; bit > 0; bit /= 2) {
        uint32_t node;
        size_t next = at;
        if (!decode(a->bytes, a->len, &next, &node))
            return false;
        if ((index & bit) && (node & 2))
            at += node >> 2;
        else if (!(index & bit) && (node & 1))
            at = next;
        else
            return (node & 3) == 0 && node >> 2 == (index & (BLOCK - 1));
    }
    return true;
}
