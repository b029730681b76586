#include "sampler/symbols/pe_debug.h"

#include "base/core/bytes.h"
#include "sampler/symbols/metadata.h"

#include <errno.h>
#include <string.h>

#define HEADERS_MAX 4096
#define SECTIONS_MAX 96u /* what Windows loads */
#define ENTRIES_MAX 32u

enum { DIRECTORY_DEBUG = 6, DIRECTORY_CLI = 14 };
enum { DEBUG_CODEVIEW = 2, DEBUG_EMBEDDED = 17 };
#define PORTABLE_MINOR 0x504d /* "PM" in the version of a CodeView entry */
#define RSDS 0x53445352u      /* "RSDS" */
#define MPDB 0x4244504du      /* "MPDB" */
#define MODULE_TABLE 0

struct directory {
    uint32_t rva, bytes;
};

struct section {
    uint32_t rva, virtual_bytes, file_offset, file_bytes;
};

struct pe {
    const struct clp_file_bytes *bytes;
    struct directory debug, cli;
    struct section sections[SECTIONS_MAX];
    unsigned section_count;
};

/* ---- headers -------------------------------------------------------------------------------- */

static void read_directories(struct clp_bytes optional, struct pe *pe)
{
    bool wide = clp_bytes_u16(&optional) == 0x20b;
    (void)clp_bytes_take(&optional, wide ? 106 : 90);
    uint32_t count = clp_bytes_u32(&optional);
    for (uint32_t i = 0; i < count && i <= DIRECTORY_CLI; i++) {
        struct directory d = {.rva = clp_bytes_u32(&optional)};
        d.bytes = clp_bytes_u32(&optional);
        if (i == DIRECTORY_DEBUG)
            pe->debug = d;
        if (i == DIRECTORY_CLI)
            pe->cli = d;
    }
    if (optional.bad)
        pe->debug = pe->cli = (struct directory){0};
}

static void read_sections(struct clp_bytes *b, unsigned count, struct pe *pe)
{
    for (unsigned i = 0; i < count && i < SECTIONS_MAX; i++) {
        struct section *s = &pe->sections[i];
        (void)clp_bytes_take(b, 8);
        s->virtual_bytes = clp_bytes_u32(b);
        s->rva = clp_bytes_u32(b);
        s->file_bytes = clp_bytes_u32(b);
        s->file_offset = clp_bytes_u32(b);
        (void)clp_bytes_take(b, 16);
        if (b->bad)
            return;
        pe->section_count = i + 1;
    }
}

static int read_headers(struct pe *pe)
{
    uint8_t head[HEADERS_MAX];
    size_t len = CLP_MIN(pe->bytes->size, sizeof(head));
    int r = clp_file_bytes_read(pe->bytes, 0, head, len);
    if (r < 0)
        return r;
    struct clp_bytes b = clp_bytes_of(head, len);
    if (clp_bytes_u16(&b) != 0x5a4d)
        return -EBADMSG;
    (void)clp_bytes_take(&b, 58);
    uint32_t at = clp_bytes_u32(&b);
    b = clp_bytes_of(head, len);
    (void)clp_bytes_take(&b, at);
    if (clp_bytes_u32(&b) != 0x4550)
        return -EBADMSG;
    (void)clp_bytes_u16(&b); /* machine: R2R images carry their operating system in it */
    unsigned sections = clp_bytes_u16(&b);
    (void)clp_bytes_take(&b, 12);
    uint16_t optional_bytes = clp_bytes_u16(&b);
    (void)clp_bytes_u16(&b);
    const uint8_t *optional = clp_bytes_take(&b, optional_bytes);
    if (!optional)
        return -EBADMSG;
    read_directories(clp_bytes_of(optional, optional_bytes), pe);
    read_sections(&b, sections, pe);
    return pe->cli.bytes ? 0 : -EBADMSG;
}

/* File offset of an address, -EBADMSG when `bytes` from there do not lie in one section's data. */
static int64_t file_offset(const struct pe *pe, uint32_t rva, uint32_t bytes)
{
    for (unsigned i = 0; i < pe->section_count; i++) {
        const struct section *s = &pe->sections[i];
        uint32_t in = rva - s->rva;
        if (rva >= s->rva && in <= s->file_bytes && bytes <= s->file_bytes - in)
            return (int64_t)s->file_offset + in;
    }
    return -EBADMSG;
}

/* ---- module version id ---------------------------------------------------------------------- */

/* The Module table has one row and stands first: generation, name, mvid, ... */
static int read_mvid(const struct pe *pe, uint8_t ret[16])
{
    uint8_t cli[16], row[10];
    struct clp_metadata md;
    int64_t at = file_offset(pe, pe->cli.rva, sizeof(cli));
    int r = at < 0 ? -EBADMSG : clp_file_bytes_read(pe->bytes, (uint64_t)at, cli, sizeof(cli));
    if (r < 0)
        return r;
    struct clp_bytes b = clp_bytes_of(cli + 8, 8);
    struct directory d = {.rva = clp_bytes_u32(&b)};
    d.bytes = clp_bytes_u32(&b);
    at = file_offset(pe, d.rva, d.bytes);
    r = at < 0 ? -EBADMSG : clp_metadata_open(pe->bytes, (uint64_t)at, d.bytes, &md);
    if (r < 0)
        return r;
    if (md.rows[MODULE_TABLE] == 0)
        return -EBADMSG;
    size_t len = 2u + md.string_index_bytes + md.guid_index_bytes;
    r = clp_file_bytes_read(pe->bytes, md.rows_at, row, len);
    if (r < 0)
        return r;
    b = clp_bytes_of(row + 2 + md.string_index_bytes, md.guid_index_bytes);
    uint32_t index = md.guid_index_bytes == 4 ? clp_bytes_u32(&b) : clp_bytes_u16(&b);
    return clp_metadata_guid(&md, index, ret);
}

/* ---- debug directory ------------------------------------------------------------------------ */

struct debug_entry {
    uint32_t stamp, type, bytes, file_offset;
    uint16_t minor;
};

static struct debug_entry parse_entry(struct clp_bytes *b)
{
    struct debug_entry e = {0};
    (void)clp_bytes_u32(b);
    e.stamp = clp_bytes_u32(b);
    (void)clp_bytes_u16(b);
    e.minor = clp_bytes_u16(b);
    e.type = clp_bytes_u32(b);
    e.bytes = clp_bytes_u32(b);
    (void)clp_bytes_u32(b);
    e.file_offset = clp_bytes_u32(b);
    return e;
}

/* The path on the build machine, which may have been Windows. */
static void keep_base_name(const char *path, size_t len, struct clp_pe_debug *ret)
{
    size_t from = 0;
    len = strnlen(path, len);
    for (size_t i = 0; i < len; i++)
        if (path[i] == '/' || path[i] == '\\')
            from = i + 1;
    size_t n = len - from;
    if (n == 0 || n >= sizeof(ret->pdb_name) || strcmp(path + from, "..") == 0)
        return;
    memcpy(ret->pdb_name, path + from, n);
    ret->pdb_name[n] = '\0';
}

/* "RSDS", GUID, age, path. The id of a portable PDB is the GUID and the entry's time stamp. */
static void read_codeview(const struct pe *pe, const struct debug_entry *e,
                          struct clp_pe_debug *ret)
{
    char data[24 + 1024 + 1];
    size_t len = CLP_MIN((size_t)e->bytes, sizeof(data) - 1);
    if (e->minor != PORTABLE_MINOR || len < 25 ||
        clp_file_bytes_read(pe->bytes, e->file_offset, data, len) < 0)
        return;
    data[len] = '\0';
    struct clp_bytes b = clp_bytes_of(data, len);
    if (clp_bytes_u32(&b) != RSDS)
        return;
    memcpy(ret->pdb_id, data + 4, 16);
    memcpy(ret->pdb_id + 16, &e->stamp, 4);
    ret->has_pdb_id = true;
    keep_base_name(data + 24, len - 24, ret);
}

static void read_embedded(const struct pe *pe, const struct debug_entry *e,
                          struct clp_pe_debug *ret)
{
    uint8_t head[8];
    if (e->bytes <= sizeof(head) || !clp_file_bytes_inside(pe->bytes, e->file_offset, e->bytes) ||
        clp_file_bytes_read(pe->bytes, e->file_offset, head, sizeof(head)) < 0)
        return;
    struct clp_bytes b = clp_bytes_of(head, sizeof(head));
    if (clp_bytes_u32(&b) != MPDB)
        return;
    ret->embedded_inflated_bytes = clp_bytes_u32(&b);
    ret->embedded_at = (uint64_t)e->file_offset + sizeof(head);
    ret->embedded_bytes = e->bytes - (uint32_t)sizeof(head);
}

static void read_debug(const struct pe *pe, struct clp_pe_debug *ret)
{
    uint8_t data[ENTRIES_MAX * 28];
    uint32_t count = CLP_MIN(pe->debug.bytes / 28, ENTRIES_MAX), bytes = count * 28;
    int64_t at = file_offset(pe, pe->debug.rva, bytes);
    if (count == 0 || at < 0 || clp_file_bytes_read(pe->bytes, (uint64_t)at, data, bytes) < 0)
        return;
    struct clp_bytes b = clp_bytes_of(data, bytes);
    for (uint32_t i = 0; i < count; i++) {
        struct debug_entry e = parse_entry(&b);
        if (e.type == DEBUG_CODEVIEW)
            read_codeview(pe, &e, ret);
        else if (e.type == DEBUG_EMBEDDED)
            read_embedded(pe, &e, ret);
    }
}

int clp_pe_debug_read(const struct clp_file_bytes *b, struct clp_pe_debug *ret)
{
    struct pe pe = {.bytes = b};
    struct clp_pe_debug debug = {0};
    int r = read_headers(&pe);
    if (r == 0)
        r = read_mvid(&pe, debug.mvid);
    if (r < 0)
        return r;
    read_debug(&pe, &debug);
    *ret = debug;
    return 0;
}
