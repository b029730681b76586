#include "sampler/symbols/pdb.h"

#include "base/cleanup.h"
#include "base/core/bytes.h"
#include "base/core/text.h"
#include "base/file.h"
#include "sampler/symbols/image_files.h"
#include "sampler/symbols/metadata.h"
#include "sampler/symbols/pe_debug.h"
#include "sampler/symbols/text_guard.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <zlib.h>

#define TOKEN_METHOD 0x06000000u
#define TABLE_DOCUMENT 0x30
#define TABLE_METHOD 0x31
#define INFLATED_MAX_BYTES (32u << 20)
#define POINTS_MAX_BYTES                                                                           \
    1024 /* of a method's sequence points; the first visible one comes early                       \
          */
#define NAME_PARTS_MAX_BYTES 256

struct clp_pdb {
    int fd; /* -1: memory */
    struct clp_metadata md;
    uint8_t document_row_bytes, document_index_bytes, method_row_bytes;
};

/* ---- opening -------------------------------------------------------------------------------- */

/* A PDB of its own has debug tables only: rows of other tables in front could not be skipped here.
 */
static int check_tables(struct clp_pdb *p)
{
    for (unsigned i = 0; i < TABLE_DOCUMENT; i++)
        if (p->md.rows[i])
            return -EBADMSG;
    p->document_index_bytes = p->md.rows[TABLE_DOCUMENT] > 0xffff ? 4 : 2;
    p->document_row_bytes = (uint8_t)(2 * p->md.blob_index_bytes + 2 * p->md.guid_index_bytes);
    p->method_row_bytes = (uint8_t)(p->document_index_bytes + p->md.blob_index_bytes);
    return p->md.rows[TABLE_METHOD] ? 0 : -ENODATA;
}

static int pdb_new(const struct clp_file_bytes *b, struct clp_pdb **ret)
{
    CLP_CLEANUP(clp_cleanup_free) struct clp_pdb *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->fd = -1;
    int r = clp_metadata_open(b, 0, b->size, &p->md);
    if (r == 0)
        r = check_tables(p);
    if (r == 0)
        *ret = CLP_TAKE(p);
    return r;
}

struct clp_pdb *clp_pdb_free(struct clp_pdb *p)
{
    if (p)
        clp_cleanup_fd(&p->fd);
    free(p);
    return NULL;
}

/* Whether it is the one that the module names. */
static bool has_id(const struct clp_pdb *p, const struct clp_pe_debug *debug)
{
    uint8_t id[CLP_PDB_ID_BYTES];
    return p->md.pdb.bytes >= sizeof(id) &&
           clp_file_bytes_read(&p->md.bytes, p->md.pdb.offset, id, sizeof(id)) == 0 &&
           memcmp(id, debug->pdb_id, sizeof(id)) == 0;
}

/* Takes the descriptor. */
static int pdb_of_fd(int owned_fd, const struct clp_pe_debug *debug, struct clp_pdb **ret)
{
    CLP_CLEANUP(clp_cleanup_fd) int fd = owned_fd;
    struct clp_file_bytes b;
    struct clp_pdb *p = NULL;
    int r = clp_file_bytes_of_fd(fd, &b);
    if (r == 0)
        r = pdb_new(&b, &p);
    if (r < 0 || !p)
        return r;
    if (debug->has_pdb_id && !has_id(p, debug)) {
        clp_pdb_free(p);
        return -ESTALE;
    }
    p->fd = CLP_TAKE_FD(fd);
    *ret = p;
    return 0;
}

/* ---- embedded ------------------------------------------------------------------------------- */

struct inflating {
    z_stream z;
    const struct clp_file_bytes *from;
    uint64_t at, left;
    uint32_t room; /* what may still come out */
    int to_fd;
};

/* Reads one piece of the input and writes all that comes of it. */
static int inflate_piece(struct inflating *f, int *ret_zlib)
{
    uint8_t in[8192], out[16384];
    size_t n = CLP_MIN(f->left, (uint64_t)sizeof(in));
    int r = n ? clp_file_bytes_read(f->from, f->at, in, n) : -EBADMSG;
    f->at += n;
    f->left -= n;
    f->z.next_in = in;
    f->z.avail_in = (uInt)n;
    *ret_zlib = Z_OK;
    while (r == 0 && *ret_zlib == Z_OK) {
        f->z.next_out = out;
        f->z.avail_out = sizeof(out);
        *ret_zlib = inflate(&f->z, Z_NO_FLUSH);
        uint32_t got = (uint32_t)(sizeof(out) - f->z.avail_out);
        if ((*ret_zlib != Z_OK && *ret_zlib != Z_STREAM_END && *ret_zlib != Z_BUF_ERROR) ||
            got > f->room)
            r = -EBADMSG;
        f->room -= CLP_MIN(got, f->room);
        if (r == 0)
            r = clp_file_write_fd(f->to_fd, out, got);
    }
    f->z.next_in = f->z.next_out = NULL; /* Z_BUF_ERROR: the piece is used up */
    return r;
}

static int inflate_all(const struct clp_file_bytes *from, const struct clp_pe_debug *debug,
                       int to_fd)
{
    struct inflating f = {.from = from,
                          .at = debug->embedded_at,
                          .left = debug->embedded_bytes,
                          .room = debug->embedded_inflated_bytes,
                          .to_fd = to_fd};
    if (f.room > INFLATED_MAX_BYTES)
        return -EFBIG;
    if (inflateInit2(&f.z, -MAX_WBITS) != Z_OK)
        return -ENOMEM;
    int r = 0, zlib = Z_OK;
    while (r == 0 && zlib != Z_STREAM_END)
        r = inflate_piece(&f, &zlib);
    inflateEnd(&f.z);
    return r;
}

static int open_embedded(const struct clp_file_bytes *module, const struct clp_pe_debug *debug,
                         struct clp_pdb **ret)
{
    CLP_CLEANUP(clp_cleanup_fd) int fd = memfd_create("clrpulse-pdb", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = inflate_all(module, debug, fd);
    return r < 0 ? r : pdb_of_fd(CLP_TAKE_FD(fd), debug, ret);
}

/* ---- beside the module ---------------------------------------------------------------------- */

static int open_beside(int root_fd, const char *module_path, const char *name, struct clp_pdb **ret,
                       const struct clp_pe_debug *debug)
{
    char path[PATH_MAX];
    struct clp_text t = clp_text_in(path, sizeof(path));
    const char *slash = strrchr(module_path, '/');
    clp_text_addn(&t, module_path, slash ? (size_t)(slash - module_path) + 1 : 0);
    clp_text_add(&t, name);
    if (t.cut)
        return -ENAMETOOLONG;
    int fd = clp_image_open_regular(root_fd, path);
    return fd < 0 ? fd : pdb_of_fd(fd, debug, ret);
}

/* Where build systems leave it: under the name that the module tells, else under the module's own.
 */
static int open_separate(int root_fd, const char *module_path, const struct clp_pe_debug *debug,
                         struct clp_pdb **ret)
{
    int r = -ENOENT;
    if (debug->pdb_name[0])
        r = open_beside(root_fd, module_path, debug->pdb_name, ret, debug);
    const char *base = strrchr(module_path, '/');
    const char *dot = strrchr(base ? base : module_path, '.');
    if (r == 0 || !dot)
        return r;
    char own[CLP_PDB_PATH_MAX];
    struct clp_text t = clp_text_in(own, sizeof(own));
    base = base ? base + 1 : module_path;
    clp_text_addn(&t, base, (size_t)(dot - base));
    clp_text_add(&t, ".pdb");
    if (t.cut || strcmp(own, debug->pdb_name) == 0)
        return r;
    int second = open_beside(root_fd, module_path, own, ret, debug);
    return second == -ENOENT ? r : second;
}

int clp_pdb_open(int root_fd, const char *path, const uint8_t *mvid, struct clp_pdb **ret)
{
    struct clp_pe_debug debug = {0};
    struct clp_file_bytes module;
    CLP_CLEANUP(clp_cleanup_fd) int fd = clp_image_open_regular(root_fd, path);
    if (fd < 0)
        return fd;
    int r = clp_file_bytes_of_fd(fd, &module);
    if (r == 0)
        r = clp_pe_debug_read(&module, &debug);
    if (r < 0)
        return r;
    if (mvid && memcmp(mvid, debug.mvid, sizeof(debug.mvid)) != 0)
        return -ESTALE;
    if (debug.embedded_bytes)
        return open_embedded(&module, &debug, ret);
    if (!debug.has_pdb_id)
        return -ENODATA;
    r = open_separate(root_fd, path, &debug, ret);
    return r == -ENOENT ? -ENODATA : r;
}

int clp_pdb_open_mem(const void *bytes, size_t len, struct clp_pdb **ret)
{
    struct clp_pe_debug debug = {0};
    struct clp_file_bytes b = clp_file_bytes_of_mem(bytes, len);
    if (len < 2 || memcmp(bytes, "MZ", 2) != 0)
        return pdb_new(&b, ret);
    int r = clp_pe_debug_read(&b, &debug);
    if (r < 0)
        return r;
    return debug.embedded_bytes ? open_embedded(&b, &debug, ret) : -ENODATA;
}

/* ---- documents ------------------------------------------------------------------------------ */

static uint32_t read_index(struct clp_bytes *b, unsigned bytes)
{
    return bytes == 4 ? clp_bytes_u32(b) : clp_bytes_u16(b);
}

static int add_part(const struct clp_pdb *p, uint32_t blob, struct clp_text *out)
{
    struct clp_metadata_range where;
    char part[NAME_PARTS_MAX_BYTES];
    if (blob == 0)
        return 0; /* an absolute path begins with an empty part */
    int r = clp_metadata_blob(&p->md, blob, &where);
    if (r < 0)
        return r;
    size_t len = CLP_MIN((size_t)where.bytes, sizeof(part));
    r = clp_file_bytes_read(&p->md.bytes, where.offset, part, len);
    if (r == 0)
        clp_text_addn(out, part, len);
    out->cut |= len < where.bytes;
    return r;
}

/* A name is a separator and the numbers of the blobs that it stands between. */
static int add_document_name(const struct clp_pdb *p, uint32_t blob, struct clp_text *out)
{
    struct clp_metadata_range where;
    uint8_t data[NAME_PARTS_MAX_BYTES];
    int r = clp_metadata_blob(&p->md, blob, &where);
    if (r < 0 || where.bytes == 0)
        return r < 0 ? r : -ENODATA;
    size_t len = CLP_MIN((size_t)where.bytes, sizeof(data));
    r = clp_file_bytes_read(&p->md.bytes, where.offset, data, len);
    const uint8_t *at = data + 1, *end = data + len;
    for (bool first = true; r == 0 && at < end && !out->cut; first = false) {
        uint32_t part;
        if (!clp_metadata_number(&at, end, &part))
            return where.bytes > len ? 0 : -EBADMSG;
        if (!first && data[0])
            clp_text_char(out, (char)data[0]);
        r = add_part(p, part, out);
    }
    return r;
}

static int document_name(const struct clp_pdb *p, uint32_t row, char *buf, size_t cap)
{
    uint8_t data[16];
    char work[CLP_PDB_DOCUMENT_MAX];
    if (row == 0 || row > p->md.rows[TABLE_DOCUMENT])
        return -EBADMSG;
    uint64_t at = p->md.rows_at + (uint64_t)(row - 1) * p->document_row_bytes;
    int r = clp_file_bytes_read(&p->md.bytes, at, data, p->document_row_bytes);
    if (r < 0)
        return r;
    struct clp_bytes b = clp_bytes_of(data, p->document_row_bytes);
    struct clp_text out = clp_text_in(work, sizeof(work));
    r = add_document_name(p, read_index(&b, p->md.blob_index_bytes), &out);
    if (r == 0)
        clp_text_guard(&out, buf, cap);
    return r;
}

/* ---- sequence points ------------------------------------------------------------------------ */

struct method_row {
    uint32_t document; /* 0: named in the points */
    uint32_t points;   /* blob */
};

static int read_method_row(const struct clp_pdb *p, uint32_t row, struct method_row *ret)
{
    uint8_t data[8];
    if (row == 0 || row > p->md.rows[TABLE_METHOD])
        return -ENODATA;
    uint64_t documents = (uint64_t)p->md.rows[TABLE_DOCUMENT] * p->document_row_bytes;
    uint64_t at = p->md.rows_at + documents + (uint64_t)(row - 1) * p->method_row_bytes;
    int r = clp_file_bytes_read(&p->md.bytes, at, data, p->method_row_bytes);
    if (r < 0)
        return r;
    struct clp_bytes b = clp_bytes_of(data, p->method_row_bytes);
    ret->document = read_index(&b, p->document_index_bytes);
    ret->points = read_index(&b, p->md.blob_index_bytes);
    return ret->points ? 0 : -ENODATA;
}

/* One record after the header: {IL offset, lines, columns, ...}. 1: a visible point, its line in
 * *ret_line; 0: hidden, or a change of document; -EBADMSG. */
static int next_point(const uint8_t **at, const uint8_t *end, bool first, uint32_t *document,
                      uint32_t *ret_line)
{
    uint32_t offset, lines, columns;
    int32_t moved;
    if (!clp_metadata_number(at, end, &offset))
        return -EBADMSG;
    if (offset == 0 && !first)
        return clp_metadata_number(at, end, document) ? 0 : -EBADMSG;
    if (!clp_metadata_number(at, end, &lines))
        return -EBADMSG;
    if (lines == 0 ? !clp_metadata_number(at, end, &columns)
                   : !clp_metadata_signed(at, end, &moved))
        return -EBADMSG;
    if (lines == 0 && columns == 0)
        return 0; /* hidden */
    return clp_metadata_number(at, end, ret_line) ? 1 : -EBADMSG;
}

static int first_line(const uint8_t *at, const uint8_t *end, uint32_t *document, uint32_t *ret_line)
{
    uint32_t locals;
    if (!clp_metadata_number(&at, end, &locals) ||
        (*document == 0 && !clp_metadata_number(&at, end, document)))
        return -EBADMSG;
    for (bool first = true; at < end; first = false) {
        int r = next_point(&at, end, first, document, ret_line);
        if (r != 0)
            return r < 0 ? r : 0;
    }
    return -ENODATA;
}

int clp_pdb_method_start(const struct clp_pdb *p, uint32_t token, struct clp_pdb_place *ret)
{
    struct method_row row;
    struct clp_metadata_range where;
    uint8_t points[POINTS_MAX_BYTES];
    uint32_t line;
    if ((token & 0xff000000u) != TOKEN_METHOD)
        return -ENODATA;
    int r = read_method_row(p, token & 0xffffffu, &row);
    if (r == 0)
        r = clp_metadata_blob(&p->md, row.points, &where);
    if (r < 0)
        return r;
    size_t len = CLP_MIN((size_t)where.bytes, sizeof(points));
    r = clp_file_bytes_read(&p->md.bytes, where.offset, points, len);
    if (r == 0)
        r = first_line(points, points + len, &row.document, &line);
    if (r < 0)
        return r;
    struct clp_pdb_place place = {.line = line};
    r = document_name(p, row.document, place.document, sizeof(place.document));
    if (r == 0)
        *ret = place;
    return r;
}
