/* Bounded text in the caller's storage: what does not fit is cut on a character boundary and
 * remembered in `cut`.  The result is always NUL-terminated, valid UTF-8 when the input was.
 * Signal-safe (no locale, no allocation). */
#ifndef CLP_BASE_CORE_TEXT_H
#define CLP_BASE_CORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct clp_text {
    char *buf;
    size_t cap; /* storage in bytes, NUL included; at least 1 */
    size_t len; /* bytes in use, NUL not counted */
    bool cut;
};

struct clp_text clp_text_in(char *buf, size_t cap);
void clp_text_add(struct clp_text *t, const char *s);
void clp_text_addn(struct clp_text *t, const char *s, size_t n);
void clp_text_char(struct clp_text *t, char c);
void clp_text_dec(struct clp_text *t, uint64_t n);
void clp_text_hex(struct clp_text *t, uint64_t n); /* lower case, no prefix, no leading zeros */
/* UTF-16 (little-endian units, as the CLR gives it) to UTF-8; lone surrogates become U+FFFD. */
void clp_text_utf16(struct clp_text *t, const uint16_t *units, size_t n);

/* Copies `n` bytes of supposed UTF-8 and replaces each invalid sequence by U+FFFD. */
void clp_text_utf8_clean(struct clp_text *t, const char *s, size_t n);

/* Length of the longest beginning of `s` that has at most `most` bytes and ends with a character.
 */
size_t clp_text_whole(const char *s, size_t most);

#endif
