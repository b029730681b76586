/* Text or bytes that grow on the heap up to a ceiling.
 *
 * A failure sticks: once an addition did not fit (-ENOBUFS at the ceiling, -ENOMEM) later ones do
 * nothing, so a writer may add a whole document and ask clp_strbuf_error once.  What was added
 * before the failure stays readable. The contents are always NUL-terminated once anything was
 * added, and may hold NUL bytes. Not thread-safe. */
#ifndef CLP_BASE_STRBUF_H
#define CLP_BASE_STRBUF_H

#include "base/core/core.h"

struct clp_strbuf {
    char
        *buf; /* NULL until the first addition; use clp_strbuf_text for a text that is never NULL */
    size_t len;           /* bytes in use, the closing NUL not counted */
    size_t cap;           /* bytes allocated */
    size_t ceiling_bytes; /* `len` never exceeds it */
    int error;            /* 0 or the first failure, negative errno */
};

void clp_strbuf_init(struct clp_strbuf *b, size_t ceiling_bytes);
/* Frees; the buffer may be used again with the same ceiling. Accepts what is already done. Its
 * parameter fits CLP_CLEANUP(clp_strbuf_done). */
void clp_strbuf_done(struct clp_strbuf *b);
/* Empties without giving memory back, forgets an error. */
void clp_strbuf_reset(struct clp_strbuf *b);

void clp_strbuf_add(struct clp_strbuf *b, const void *data, size_t len);
void clp_strbuf_str(struct clp_strbuf *b, const char *s);
void clp_strbuf_char(struct clp_strbuf *b, char c);
void clp_strbuf_printf(struct clp_strbuf *b, const char *fmt, ...) CLP_PRINTF(2, 3);
/* A JSON string with its quotes: control characters escaped, invalid UTF-8 replaced by U+FFFD. */
void clp_strbuf_json(struct clp_strbuf *b, const char *s, size_t len);

/* 0, -ENOBUFS (ceiling) or -ENOMEM: the first failure since init or reset. */
int clp_strbuf_error(const struct clp_strbuf *b) CLP_MUST_USE;
/* The text so far, "" when there is none. Valid until the next addition. */
const char *clp_strbuf_text(const struct clp_strbuf *b);
/* Hands the contents to the caller (free), NUL-terminated, the length in *ret_len when it is not
 * NULL. The buffer is empty afterwards. 0, or the sticking error, or -ENOMEM; outputs untouched
 * then. */
int clp_strbuf_take(struct clp_strbuf *b, char **ret, size_t *ret_len) CLP_MUST_USE;

#endif
