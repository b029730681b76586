#include "base/strbuf.h"
#include "base/core/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BYTES 64u

void clp_strbuf_init(struct clp_strbuf *b, size_t ceiling_bytes)
{
    *b = (struct clp_strbuf){.ceiling_bytes = ceiling_bytes};
}

void clp_strbuf_done(struct clp_strbuf *b)
{
    free(b->buf);
    clp_strbuf_init(b, b->ceiling_bytes);
}

void clp_strbuf_reset(struct clp_strbuf *b)
{
    b->len = 0;
    b->error = 0;
    if (b->buf)
        b->buf[0] = '\0';
}

/* Room for `more` bytes and the NUL. */
static bool make_room(struct clp_strbuf *b, size_t more)
{
    if (b->error)
        return false;
    if (b->len > b->ceiling_bytes || more > b->ceiling_bytes - b->len) {
        b->error = -ENOBUFS;
        return false;
    }
    size_t need = b->len + more + 1;
    if (need <= b->cap)
        return true;
    size_t cap = CLP_MAX(CLP_MAX(b->cap + b->cap / 2, need), (size_t)FIRST_BYTES);
    char *grown = realloc(b->buf, cap);
    if (!grown) {
        b->error = -ENOMEM;
        return false;
    }
    b->buf = grown;
    b->cap = cap;
    return true;
}

void clp_strbuf_add(struct clp_strbuf *b, const void *data, size_t len)
{
    if (!make_room(b, len))
        return;
    if (len)
        memcpy(b->buf + b->len, data, len);
    b->len += len;
    b->buf[b->len] = '\0';
}

void clp_strbuf_str(struct clp_strbuf *b, const char *s)
{
    clp_strbuf_add(b, s, strlen(s));
}

void clp_strbuf_char(struct clp_strbuf *b, char c)
{
    clp_strbuf_add(b, &c, 1);
}

void clp_strbuf_printf(struct clp_strbuf *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int need = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (need < 0) {
        b->error = b->error ? b->error : -EINVAL;
        return;
    }
    if (!make_room(b, (size_t)need))
        return;
    va_start(args, fmt);
    (void)vsnprintf(b->buf + b->len, (size_t)need + 1, fmt, args);
    va_end(args);
    b->len += (size_t)need;
}

static void add_json_char(struct clp_strbuf *b, char c)
{
    static const char escapes[] = {
        ['"'] = '"',  ['\\'] = '\\', ['\b'] = 'b', ['\f'] = 'f',
        ['\n'] = 'n', ['\r'] = 'r',  ['\t'] = 't',
    };
    unsigned char u = (unsigned char)c;
    if (u < sizeof(escapes) && escapes[u]) {
        clp_strbuf_char(b, '\\');
        clp_strbuf_char(b, escapes[u]);
    } else if (u < 0x20 || u == 0x7f) {
        clp_strbuf_printf(b, "\\u%04x", u);
    } else {
        clp_strbuf_char(b, c);
    }
}

/* Cleans piece by piece, so that any length needs only a small buffer. A piece ends before a
 * continuation byte, which is inside a character only if the text is valid there. */
static size_t piece_len(const char *s, size_t left, size_t most)
{
    if (left <= most)
        return left;
    size_t n = most;
    while (n > most - 3 && ((unsigned char)s[n] & 0xc0) == 0x80)
        n--;
    return n;
}

void clp_strbuf_json(struct clp_strbuf *b, const char *s, size_t len)
{
    char clean[256 * 3 + 1]; /* every byte may become U+FFFD */
    clp_strbuf_char(b, '"');
    for (size_t at = 0, n; at < len; at += n) {
        n = piece_len(s + at, len - at, 256);
        struct clp_text t = clp_text_in(clean, sizeof(clean));
        clp_text_utf8_clean(&t, s + at, n);
        for (size_t i = 0; i < t.len; i++)
            add_json_char(b, clean[i]);
    }
    clp_strbuf_char(b, '"');
}

int clp_strbuf_error(const struct clp_strbuf *b)
{
    return b->error;
}

const char *clp_strbuf_text(const struct clp_strbuf *b)
{
    return b->buf ? b->buf : "";
}

int clp_strbuf_take(struct clp_strbuf *b, char **ret, size_t *ret_len)
{
    if (!make_room(b, 0)) /* an empty buffer still gives a NUL-terminated text */
        return b->error;
    b->buf[b->len] = '\0';
    *ret = b->buf;
    if (ret_len)
        *ret_len = b->len;
    clp_strbuf_init(b, b->ceiling_bytes);
    return 0;
}
