/* Any bytes as a chunk of the spool: refused, or what it holds can be written again and comes back
 * the same. The checksums are made right first, or nothing would ever get past them. */
#include "uploader/chunk.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put32(uint8_t *to, uint32_t n)
{
    n = htole32(n);
    memcpy(to, &n, sizeof(n));
}

static void check(const uint8_t *data, size_t size)
{
    struct clp_chunk a, b;
    uint8_t *again = NULL;
    size_t len;
    if (clp_chunk_read(data, size, &a, NULL) < 0)
        return;
    if (clp_chunk_write(&a.header, a.profile, a.profile_len, &again, &len) == 0) {
        if (clp_chunk_read(again, len, &b, NULL) < 0 || b.profile_len != a.profile_len ||
            b.header.seq != a.header.seq || b.header.tag_count != a.header.tag_count ||
            memcmp(a.profile, b.profile, a.profile_len) != 0)
            abort();
        clp_chunk_done(&b);
        free(again);
    }
    clp_chunk_done(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(data, size);
    if (size < CLP_CHUNK_PREFIX_BYTES)
        return 0;
    uint8_t *copy = malloc(size);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    uint64_t header_len = copy[12] | (uint32_t)copy[13] << 8;
    uint64_t rest = size - CLP_CHUNK_PREFIX_BYTES;
    uint64_t profile_len = htole64(rest - (header_len < rest ? header_len : rest));
    memcpy(copy, CLP_CHUNK_MAGIC, 8);
    put32(copy + 8, CLP_CHUNK_VERSION);
    put32(copy + 12, (uint32_t)(header_len < rest ? header_len : rest));
    memcpy(copy + 16, &profile_len, 8);
    put32(copy + 24, (uint32_t)crc32(0, copy + CLP_CHUNK_PREFIX_BYTES, (uInt)rest));
    put32(copy + 28, (uint32_t)crc32(0, copy, 28));
    check(copy, size);
    free(copy);
    return 0;
}
