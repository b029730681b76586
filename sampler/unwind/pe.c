#include "sampler/unwind/pe.h"

#include <errno.h>
#include <string.h>

#include "base/core/bytes.h"

#define PE_OFFSET_AT 0x3c
#define FILE_HEADER_BYTES 24u /* with the signature */
#define SECTION_BYTES 40u
#define PE32_PLUS 0x20b
#define DIRECTORY_EXPORT 0
#define DIRECTORY_CLI 14
#define CLI_HEADER_BYTES 72u
#define CLI_NATIVE_HEADER_AT 64u
#define R2R_SIGNATURE 0x00525452u /* "RTR" */
#define R2R_SECTIONS_MAX 256u
#define EXPORTS_MAX 64u

static void take_directories(struct clp_bytes b, struct clp_pe *pe)
{
    uint32_t n = clp_bytes_u32(&b);
    for (uint32_t i = 0; i < CLP_MIN(n, 16u) && !b.bad; i++) {
        uint32_t rva = clp_bytes_u32(&b);
        uint32_t bytes = clp_bytes_u32(&b);
        if (i == DIRECTORY_EXPORT) {
            pe->export_rva = rva;
            pe->export_bytes = bytes;
        } else if (i == DIRECTORY_CLI) {
            pe->cli_rva = rva;
            pe->cli_bytes = bytes;
        }
    }
}

static int read_sections(struct clp_pe *pe, uint64_t at, uint32_t n)
{
    if (n > CLP_PE_SECTIONS_MAX)
        return -EBADMSG;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t raw[SECTION_BYTES];
        int r = clp_source_read(pe->source, at + (uint64_t)i * SECTION_BYTES, raw, sizeof(raw));
        if (r < 0)
            return r;
        struct clp_bytes b =
            clp_bytes_of(raw + 12, sizeof(raw) - 12); /* behind name, virtual size */
        pe->section[i].rva = clp_bytes_u32(&b);
        pe->section[i].bytes = clp_bytes_u32(&b); /* what lies in the file */
        pe->section[i].offset = clp_bytes_u32(&b);
    }
    pe->sections = n;
    return 0;
}

int clp_pe_open(const struct clp_source *s, struct clp_pe *ret)
{
    uint8_t dos[64], file[FILE_HEADER_BYTES], optional[240] = {0};
    struct clp_pe pe = {.source = s};
    int r = clp_source_read(s, 0, dos, sizeof(dos));
    if (r < 0)
        return r;
    uint32_t at;
    memcpy(&at, dos + PE_OFFSET_AT, sizeof(at));
    if (dos[0] != 'M' || dos[1] != 'Z')
        return -EBADMSG;
    r = clp_source_read(s, at, file, sizeof(file));
    if (r < 0)
        return r;
    struct clp_bytes b = clp_bytes_of(file, sizeof(file));
    uint32_t signature = clp_bytes_u32(&b);
    pe.machine = clp_bytes_u16(&b);
    uint16_t sections = clp_bytes_u16(&b);
    (void)clp_bytes_take(&b, 12);
    uint16_t optional_bytes = clp_bytes_u16(&b);
    if (signature != 0x00004550u)
        return -EBADMSG;
    r = clp_source_read(s, at + FILE_HEADER_BYTES, optional,
                        CLP_MIN(optional_bytes, sizeof(optional)));
    if (r < 0)
        return r;
    b = clp_bytes_of(optional, sizeof(optional));
    if (clp_bytes_u16(&b) != PE32_PLUS)
        return -ENODATA; /* 32-bit or IL only: no code for this processor */
    memcpy(&pe.image_bytes, optional + 56, sizeof(pe.image_bytes));
    take_directories(clp_bytes_of(optional + 108, sizeof(optional) - 108), &pe);
    r = read_sections(&pe, at + FILE_HEADER_BYTES + optional_bytes, sections);
    if (r < 0)
        return r;
    *ret = pe;
    return 0;
}

int clp_pe_offset(const struct clp_pe *pe, uint32_t rva, uint32_t len, uint64_t *ret)
{
    for (uint32_t i = 0; i < pe->sections; i++) {
        uint32_t into = rva - pe->section[i].rva;
        if (rva < pe->section[i].rva || into >= pe->section[i].bytes)
            continue;
        if (len > pe->section[i].bytes - into)
            return -EBADMSG;
        *ret = (uint64_t)pe->section[i].offset + into;
        return 0;
    }
    return -EBADMSG;
}

int clp_pe_read(const struct clp_pe *pe, uint32_t rva, void *buf, uint32_t len)
{
    uint64_t at;
    int r = clp_pe_offset(pe, rva, len, &at);
    return r < 0 ? r : clp_source_read(pe->source, at, buf, len);
}

static int read_u32(const struct clp_pe *pe, uint32_t rva, uint32_t *ret)
{
    return clp_pe_read(pe, rva, ret, sizeof(*ret));
}

static bool is_r2r_header(const struct clp_pe *pe, uint32_t rva)
{
    uint32_t signature;
    return read_u32(pe, rva, &signature) == 0 && signature == R2R_SIGNATURE;
}

/* Export directory: number of names at 24, addresses at 28, names at 32, ordinals at 36. A
 * composite image has one export. */
static int exported_header(const struct clp_pe *pe, uint32_t *ret)
{
    static const char wanted[] = "RTR_HEADER";
    uint32_t field[10];
    if (pe->export_rva == 0 || clp_pe_read(pe, pe->export_rva, field, sizeof(field)) < 0)
        return -ENODATA;
    for (uint32_t i = 0; i < CLP_MIN(field[6], EXPORTS_MAX); i++) {
        char name[sizeof(wanted)];
        uint32_t name_rva;
        uint16_t ordinal;
        if (read_u32(pe, field[8] + i * 4, &name_rva) < 0 ||
            clp_pe_read(pe, name_rva, name, sizeof(name)) < 0)
            continue;
        if (memcmp(name, wanted, sizeof(wanted)) != 0)
            continue;
        if (clp_pe_read(pe, field[9] + i * 2, &ordinal, sizeof(ordinal)) < 0)
            return -EBADMSG;
        return read_u32(pe, field[7] + ordinal * 4u, ret) < 0 ? -EBADMSG : 0;
    }
    return -ENODATA;
}

int clp_pe_r2r_header(const struct clp_pe *pe, uint32_t *ret_rva)
{
    uint32_t rva = 0;
    if (pe->cli_rva && pe->cli_bytes >= CLI_HEADER_BYTES) {
        int r = read_u32(pe, pe->cli_rva + CLI_NATIVE_HEADER_AT, &rva);
        if (r < 0)
            return r;
    } else if (exported_header(pe, &rva) < 0) {
        return -ENODATA;
    }
    if (rva == 0 || !is_r2r_header(pe, rva))
        return -ENODATA;
    *ret_rva = rva;
    return 0;
}

/* Header: signature, two u16 versions, flags, number of sections, then {type, rva, bytes} each. */
int clp_pe_r2r_section(const struct clp_pe *pe, uint32_t header_rva, enum clp_r2r_section type,
                       uint32_t *ret_rva, uint32_t *ret_bytes)
{
    uint32_t n;
    int r = read_u32(pe, header_rva + 12, &n);
    for (uint32_t i = 0; r == 0 && i < CLP_MIN(n, R2R_SECTIONS_MAX); i++) {
        uint32_t entry[3];
        r = clp_pe_read(pe, header_rva + 16 + i * 12, entry, sizeof(entry));
        if (r == 0 && entry[0] == (uint32_t)type) {
            *ret_rva = entry[1];
            *ret_bytes = entry[2];
            return 0;
        }
    }
    return r < 0 ? r : -ENOENT;
}
