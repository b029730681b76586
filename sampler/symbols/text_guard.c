#include "sampler/symbols/text_guard.h"

#include <string.h>

static void hide_controls(char *s)
{
    for (unsigned char *c = (unsigned char *)s; *c; c++) {
        if (*c < 0x20 || *c == 0x7f)
            *c = '?';
        else if (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) /* C1: terminals obey these, too */
            *c = c[1] = '?';
    }
}

/* Puts dots at the end, in place of whole characters. */
static void end_in_dots(struct clp_text *t)
{
    static const char dots[] = "...";
    size_t n = sizeof(dots) - 1;
    if (t->cap <= n)
        return;
    size_t at = t->len;
    if (at + n > t->cap - 1)
        at = t->cap - 1 - n;
    while (at > 0 && ((unsigned char)t->buf[at] & 0xc0) == 0x80)
        at--;
    memcpy(t->buf + at, dots, n + 1);
    t->len = at + n;
}

void clp_text_guard(const struct clp_text *work, char *buf, size_t cap)
{
    struct clp_text out = clp_text_in(buf, cap);
    /* A NUL in the middle would end the text for its readers. */
    for (size_t at = 0; at < work->len;) {
        size_t n = strnlen(work->buf + at, work->len - at);
        clp_text_utf8_clean(&out, work->buf + at, n);
        at += n;
        if (at < work->len) {
            clp_text_char(&out, '?');
            at++;
        }
    }
    hide_controls(buf);
    if (work->cut || out.cut)
        end_in_dots(&out);
}
