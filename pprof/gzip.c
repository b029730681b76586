#include "pprof/gzip.h"
#include "base/cleanup.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <zlib.h>

#define GZIP_WINDOW (15 + 16) /* zlib's sign for: largest window, gzip header */
#define PIECE_BYTES 16384u

struct clp_gzip {
    z_stream z;
    struct clp_strbuf *out;
};

int clp_gzip_new(struct clp_strbuf *out, struct clp_gzip **ret)
{
    struct clp_gzip *z = calloc(1, sizeof(*z));
    if (!z)
        return -ENOMEM;
    z->out = out;
    /* The header that zlib writes has no time and no name: the same input gives the same bytes. */
    if (deflateInit2(&z->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, 8,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
        free(z);
        return -ENOMEM;
    }
    *ret = z;
    return 0;
}

struct clp_gzip *clp_gzip_free(struct clp_gzip *z)
{
    if (z) {
        (void)deflateEnd(&z->z);
        free(z);
    }
    return NULL;
}

void clp_gzip_freep(struct clp_gzip **z)
{
    *z = clp_gzip_free(*z);
}

/* Runs the compressor until it has taken all input, and at the end until it has given all output.
 */
static int run(struct clp_gzip *z, int flush)
{
    uint8_t piece[PIECE_BYTES];
    do {
        z->z.next_out = piece;
        z->z.avail_out = sizeof(piece);
        (void)deflate(&z->z, flush); /* fails only on a broken stream */
        clp_strbuf_add(z->out, piece, sizeof(piece) - z->z.avail_out);
    } while (z->z.avail_out == 0 && clp_strbuf_error(z->out) == 0);
    return clp_strbuf_error(z->out);
}

int clp_gzip_add(struct clp_gzip *z, const void *data, size_t len)
{
    const uint8_t *at = data;
    while (len > 0) {
        uInt n = (uInt)CLP_MIN(len, (size_t)INT_MAX);
        z->z.next_in = (Bytef *)(uintptr_t)at; /* zlib only reads it */
        z->z.avail_in = n;
        int r = run(z, Z_NO_FLUSH);
        if (r < 0)
            return r;
        at += n;
        len -= n;
    }
    return 0;
}

int clp_gzip_finish(struct clp_gzip *z)
{
    z->z.avail_in = 0;
    return run(z, Z_FINISH);
}

bool clp_gzip_is(const void *data, size_t len)
{
    const uint8_t *b = data;
    return len >= 3 && b[0] == 0x1f && b[1] == 0x8b && b[2] == 8;
}

/* One call of inflate: its verdict, what came out is added to `out`. */
static int inflate_piece(z_stream *z, struct clp_strbuf *out)
{
    uint8_t piece[PIECE_BYTES];
    z->next_out = piece;
    z->avail_out = sizeof(piece);
    int verdict = inflate(z, Z_NO_FLUSH);
    clp_strbuf_add(out, piece, sizeof(piece) - z->avail_out);
    return verdict;
}

static int inflate_all(z_stream *z, struct clp_strbuf *out)
{
    for (;;) {
        int verdict = inflate_piece(z, out);
        if (clp_strbuf_error(out) < 0)
            return clp_strbuf_error(out);
        if (verdict == Z_STREAM_END && z->avail_in == 0)
            return 0;
        if (verdict == Z_STREAM_END)
            verdict = inflateReset(z); /* another member follows */
        if (verdict == Z_MEM_ERROR)
            return -ENOMEM;
        /* Z_BUF_ERROR: it wants more input than there is. */
        if (verdict != Z_OK)
            return -EBADMSG;
    }
}

int clp_gunzip(const void *data, size_t len, size_t ceiling_bytes, uint8_t **ret, size_t *ret_len)
{
    if (len > UINT_MAX)
        return -EFBIG;
    CLP_CLEANUP(clp_strbuf_done) struct clp_strbuf out;
    clp_strbuf_init(&out, ceiling_bytes);
    z_stream z = {.next_in = (Bytef *)(uintptr_t)data, .avail_in = (uInt)len};
    if (inflateInit2(&z, GZIP_WINDOW) != Z_OK)
        return -ENOMEM;
    int r = inflate_all(&z, &out);
    (void)inflateEnd(&z);
    char *text;
    if (r == 0)
        r = clp_strbuf_take(&out, &text, ret_len);
    if (r == 0)
        *ret = (uint8_t *)text;
    return r == -ENOBUFS ? -EFBIG : r;
}
