#include "sampler/symbols/metadata.h"

#include "base/core/bytes.h"

#include <errno.h>
#include <string.h>

#define SIGNATURE 0x424a5342u /* "BSJB" */
#define HEAD_MAX 1024         /* root and stream headers; compilers need about 120 bytes */
#define STREAMS_MAX 16

enum { WIDE_STRINGS = 1, WIDE_GUIDS = 2, WIDE_BLOBS = 4, EXTRA_DATA = 0x40 };

/* ---- root ----------------------------------------------------------------------------------- */

static void keep_stream(struct clp_metadata *md, const char *name, struct clp_metadata_range where,
                        struct clp_metadata_range *tables)
{
    if (strcmp(name, "#Blob") == 0)
        md->blob = where;
    else if (strcmp(name, "#GUID") == 0)
        md->guid = where;
    else if (strcmp(name, "#Pdb") == 0)
        md->pdb = where;
    else if (strcmp(name, "#~") == 0)
        *tables = where;
}

/* A name is padded to a multiple of four, its NUL counted. */
static const char *stream_name(struct clp_bytes *b)
{
    const char *name = clp_bytes_cstr(b);
    if (name)
        (void)clp_bytes_take(b, (4 - (strlen(name) + 1) % 4) % 4);
    return name;
}

static int read_root(struct clp_bytes *b, uint64_t offset, uint64_t size, struct clp_metadata *md,
                     struct clp_metadata_range *ret_tables)
{
    if (clp_bytes_u32(b) != SIGNATURE)
        return -EBADMSG;
    (void)clp_bytes_take(b, 8); /* versions of the format, reserved */
    (void)clp_bytes_take(b, clp_bytes_u32(b));
    (void)clp_bytes_u16(b);
    unsigned streams = clp_bytes_u16(b);
    for (unsigned i = 0; i < streams && i < STREAMS_MAX && !b->bad; i++) {
        uint32_t at = clp_bytes_u32(b);
        struct clp_metadata_range where = {.offset = offset + at, .bytes = clp_bytes_u32(b)};
        const char *name = stream_name(b);
        if (!name || at > size || where.bytes > size - at)
            return -EBADMSG;
        keep_stream(md, name, where, ret_tables);
    }
    return b->bad || ret_tables->bytes == 0 ? -EBADMSG : 0;
}

/* ---- tables --------------------------------------------------------------------------------- */

static int read_tables(struct clp_metadata *md, const struct clp_metadata_range *tables)
{
    uint8_t head[24 + 4 * CLP_METADATA_TABLES + 4];
    size_t len = CLP_MIN((size_t)tables->bytes, sizeof(head));
    int r = clp_file_bytes_read(&md->bytes, tables->offset, head, len);
    if (r < 0)
        return r;
    struct clp_bytes b = clp_bytes_of(head, len);
    (void)clp_bytes_take(&b, 6);
    uint8_t wide = clp_bytes_u8(&b);
    (void)clp_bytes_u8(&b);
    uint64_t valid = clp_bytes_u64(&b);
    (void)clp_bytes_u64(&b); /* which are sorted */
    for (unsigned i = 0; i < CLP_METADATA_TABLES; i++)
        if (valid >> i & 1)
            md->rows[i] = clp_bytes_u32(&b);
    if (wide & EXTRA_DATA)
        (void)clp_bytes_u32(&b);
    md->string_index_bytes = wide & WIDE_STRINGS ? 4 : 2;
    md->guid_index_bytes = wide & WIDE_GUIDS ? 4 : 2;
    md->blob_index_bytes = wide & WIDE_BLOBS ? 4 : 2;
    md->rows_at = tables->offset + (uint64_t)(b.at - head);
    return b.bad ? -EBADMSG : 0;
}

int clp_metadata_open(const struct clp_file_bytes *bytes, uint64_t offset, uint64_t size,
                      struct clp_metadata *ret)
{
    uint8_t head[HEAD_MAX];
    struct clp_metadata md = {.bytes = *bytes};
    struct clp_metadata_range tables = {0};
    if (!clp_file_bytes_inside(bytes, offset, size))
        return -EBADMSG;
    size_t len = CLP_MIN(size, sizeof(head));
    int r = clp_file_bytes_read(bytes, offset, head, len);
    if (r < 0)
        return r;
    struct clp_bytes b = clp_bytes_of(head, len);
    r = read_root(&b, offset, size, &md, &tables);
    if (r == 0)
        r = read_tables(&md, &tables);
    if (r == 0)
        *ret = md;
    return r;
}

/* ---- heaps ---------------------------------------------------------------------------------- */

bool clp_metadata_number(const uint8_t **at, const uint8_t *end, uint32_t *ret)
{
    const uint8_t *p = *at;
    if (p == end)
        return false;
    size_t more = (p[0] & 0x80) == 0 ? 0 : (p[0] & 0x40) == 0 ? 1 : (p[0] & 0x20) == 0 ? 3 : 9;
    if (more > (size_t)(end - p) - 1)
        return false;
    uint32_t n = more == 0 ? p[0] : more == 1 ? p[0] & 0x3f : p[0] & 0x1f;
    for (size_t i = 1; i <= more; i++)
        n = n << 8 | p[i];
    *at = p + more + 1;
    *ret = n;
    return true;
}

/* The sign is the lowest bit; the bits above are two's complement of 6, 13 or 28 bits. */
bool clp_metadata_signed(const uint8_t **at, const uint8_t *end, int32_t *ret)
{
    const uint8_t *start = *at;
    uint32_t n;
    if (!clp_metadata_number(at, end, &n))
        return false;
    unsigned bits = *at - start == 1 ? 6 : *at - start == 2 ? 13 : 28;
    *ret = (int32_t)(n >> 1);
    if (n & 1)
        *ret -= (int32_t)(1u << bits);
    return true;
}

int clp_metadata_blob(const struct clp_metadata *md, uint32_t index, struct clp_metadata_range *ret)
{
    uint8_t head[4];
    if (index >= md->blob.bytes)
        return -EBADMSG;
    size_t len = CLP_MIN((size_t)(md->blob.bytes - index), sizeof(head));
    int r = clp_file_bytes_read(&md->bytes, md->blob.offset + index, head, len);
    if (r < 0)
        return r;
    const uint8_t *at = head;
    uint32_t bytes;
    if (!clp_metadata_number(&at, head + len, &bytes))
        return -EBADMSG;
    uint32_t used = (uint32_t)(at - head);
    if (bytes > md->blob.bytes - index - used)
        return -EBADMSG;
    *ret = (struct clp_metadata_range){.offset = md->blob.offset + index + used, .bytes = bytes};
    return 0;
}

int clp_metadata_guid(const struct clp_metadata *md, uint32_t index, uint8_t ret[16])
{
    if (index == 0)
        return -ENODATA;
    if (index > md->guid.bytes / 16)
        return -EBADMSG;
    return clp_file_bytes_read(&md->bytes, md->guid.offset + (uint64_t)(index - 1) * 16, ret, 16);
}
