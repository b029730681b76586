#include "base/core/text.h"

#include <string.h>

#define REPLACEMENT 0xfffdu

struct clp_text clp_text_in(char *buf, size_t cap)
{
    buf[0] = '\0';
    return (struct clp_text){.buf = buf, .cap = cap};
}

/* `s` is longer than `n`. */
static size_t whole_chars(const char *s, size_t n)
{
    while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80)
        n--;
    return n;
}

size_t clp_text_whole(const char *s, size_t most)
{
    size_t len = strlen(s);
    return len > most ? whole_chars(s, most) : len;
}

void clp_text_addn(struct clp_text *t, const char *s, size_t n)
{
    size_t room = t->cap - 1 - t->len;
    if (t->cut)
        return;
    if (n > room) {
        n = whole_chars(s, room);
        t->cut = true;
    }
    memcpy(t->buf + t->len, s, n);
    t->len += n;
    t->buf[t->len] = '\0';
}

void clp_text_add(struct clp_text *t, const char *s)
{
    clp_text_addn(t, s, strlen(s));
}

void clp_text_char(struct clp_text *t, char c)
{
    clp_text_addn(t, &c, 1);
}

static void add_number(struct clp_text *t, uint64_t n, unsigned base)
{
    char digits[20];
    size_t at = sizeof(digits);
    do {
        digits[--at] = "0123456789abcdef"[n % base];
        n /= base;
    } while (n);
    clp_text_addn(t, digits + at, sizeof(digits) - at);
}

void clp_text_dec(struct clp_text *t, uint64_t n)
{
    add_number(t, n, 10);
}

void clp_text_hex(struct clp_text *t, uint64_t n)
{
    add_number(t, n, 16);
}

static void add_code_point(struct clp_text *t, uint32_t c)
{
    char out[4];
    size_t n;
    if (c < 0x80) {
        out[0] = (char)c;
        n = 1;
    } else if (c < 0x800) {
        out[0] = (char)(0xc0 | (c >> 6));
        n = 2;
    } else if (c < 0x10000) {
        out[0] = (char)(0xe0 | (c >> 12));
        n = 3;
    } else {
        out[0] = (char)(0xf0 | (c >> 18));
        n = 4;
    }
    for (size_t i = 1; i < n; i++)
        out[i] = (char)(0x80 | ((c >> (6 * (n - 1 - i))) & 0x3f));
    clp_text_addn(t, out, n);
}

void clp_text_utf16(struct clp_text *t, const uint16_t *units, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t c = units[i];
        if (c >= 0xd800 && c < 0xdc00 && i + 1 < n && (units[i + 1] & 0xfc00) == 0xdc00) {
            c = 0x10000 + ((c - 0xd800) << 10) + (units[i + 1] - 0xdc00u);
            i++;
        } else if (c >= 0xd800 && c < 0xe000) {
            c = REPLACEMENT;
        }
        add_code_point(t, c);
    }
}

/* Bytes of the valid UTF-8 character at `s`, or 0. RFC 3629: no overlong forms, no surrogates. */
static size_t valid_char(const unsigned char *s, size_t n)
{
    unsigned char c = s[0];
    size_t len = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : (c & 0xf0) == 0xe0 ? 3 : 0;
    if (c >= 0xf0 && c < 0xf5)
        len = 4;
    if (len == 0 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((c == 0xe0 && s[1] < 0xa0) || (c == 0xed && s[1] >= 0xa0) || (c == 0xf0 && s[1] < 0x90) ||
        (c == 0xf4 && s[1] >= 0x90))
        return 0;
    return len;
}

void clp_text_utf8_clean(struct clp_text *t, const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && !t->cut) {
        size_t len = valid_char((const unsigned char *)s + i, n - i);
        if (len) {
            clp_text_addn(t, s + i, len);
            i += len;
        } else {
            add_code_point(t, REPLACEMENT);
            i++;
        }
    }
}
