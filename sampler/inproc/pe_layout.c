#include "sampler/inproc/pe_layout.h"

#include "base/core/bytes.h"

#include <errno.h>
#include <string.h>

enum {
    DOS_LFANEW = 0x3c,
    COFF_TIME_STAMP = 8, /* from the PE signature */
    OPTIONAL_START = 24,
    OPTIONAL_SIZE_OF_IMAGE = 56,
    OPTIONAL_DIRECTORY_COUNT = 108,
    OPTIONAL_DIRECTORIES = 112,
    DIRECTORY_CLR = 14,
    PE_HEAD_BYTES = OPTIONAL_START + OPTIONAL_DIRECTORIES + 16 * 8,
    CLR_NATIVE_HEADER = 64, /* ManagedNativeHeader of the CLR header */
    CLR_HEAD_BYTES = 72,
    R2R_FLAGS = 8,
    R2R_HEAD_BYTES = 12,
    R2R_FLAG_COMPONENT = 0x20,
    R2R_SIGNATURE = 0x00525452, /* "RTR" */
    MAGIC_PE32_PLUS = 0x20b,
};

static uint32_t u32_at(const uint8_t *p, size_t at)
{
    struct clp_bytes b = clp_bytes_of(p + at, sizeof(uint32_t));
    return clp_bytes_u32(&b);
}

struct source {
    clp_pe_read_fn *read;
    void *user;
};

static int read_all(const struct source *from, uint64_t address, void *buf, size_t len)
{
    int64_t n = from->read(from->user, address, buf, len);
    if (n < 0)
        return (int)n;
    return (size_t)n == len ? 0 : -EBADMSG;
}

static int read_head(uint64_t base, const struct source *from, uint8_t *head)
{
    uint8_t dos[DOS_LFANEW + 4];
    int r = read_all(from, base, dos, sizeof(dos));
    if (r < 0)
        return r;
    uint32_t lfanew = u32_at(dos, DOS_LFANEW);
    if (dos[0] != 'M' || dos[1] != 'Z' || lfanew > 0x10000)
        return -EBADMSG;
    r = read_all(from, base + lfanew, head, PE_HEAD_BYTES);
    if (r < 0)
        return r;
    bool plus = head[OPTIONAL_START] == (MAGIC_PE32_PLUS & 0xff) &&
                head[OPTIONAL_START + 1] == MAGIC_PE32_PLUS >> 8;
    return memcmp(head, "PE\0\0", 4) == 0 && plus ? 0 : -EBADMSG;
}

/* A header that cannot be read is none. */
static void read_native_header(uint64_t base, uint32_t clr_rva, const struct source *from,
                               struct clp_pe_layout *l)
{
    uint8_t clr[CLR_HEAD_BYTES], r2r[R2R_HEAD_BYTES];
    if (clr_rva == 0 || clr_rva >= l->image_bytes ||
        read_all(from, base + clr_rva, clr, sizeof(clr)) < 0)
        return;
    uint32_t rva = u32_at(clr, CLR_NATIVE_HEADER);
    if (rva == 0 || rva >= l->image_bytes || read_all(from, base + rva, r2r, sizeof(r2r)) < 0 ||
        u32_at(r2r, 0) != R2R_SIGNATURE)
        return;
    l->native_code = true;
    l->component = u32_at(r2r, R2R_FLAGS) & R2R_FLAG_COMPONENT;
}

int clp_pe_layout(uint64_t base, clp_pe_read_fn *read, void *user, struct clp_pe_layout *ret)
{
    struct source source = {read, user}, *from = &source;
    uint8_t head[PE_HEAD_BYTES];
    int r = read_head(base, from, head);
    if (r < 0)
        return r;
    const uint8_t *optional = head + OPTIONAL_START;
    struct clp_pe_layout l = {.image_bytes = u32_at(optional, OPTIONAL_SIZE_OF_IMAGE),
                              .time_stamp = u32_at(head, COFF_TIME_STAMP)};
    if (u32_at(optional, OPTIONAL_DIRECTORY_COUNT) > DIRECTORY_CLR)
        read_native_header(base, u32_at(optional, OPTIONAL_DIRECTORIES + DIRECTORY_CLR * 8), from,
                           &l);
    *ret = l;
    return 0;
}
