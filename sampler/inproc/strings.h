/* Interned text: each distinct text is kept once, counted, and given back when nobody uses it.
 *
 * Names of methods that come and go (compiled expressions are numbered: every name is new) would
 * fill a plain arena; here their memory is used again.  Not thread-safe; not signal-safe (mmap). */
#ifndef CLP_SAMPLER_INPROC_STRINGS_H
#define CLP_SAMPLER_INPROC_STRINGS_H

#include "base/core/arena.h"

#include <stdbool.h>

#define CLP_STRING_MAX_BYTES 2048u
#define CLP_STRINGS_BUCKETS 8192u
#define CLP_STRINGS_CLASSES 16u

struct clp_string {
    struct clp_string *next; /* in its bucket, or in the free list of its size class */
    uint32_t hash;
    uint32_t uses;
    uint16_t len;
    uint8_t size_class;
    char text[]; /* no NUL */
};

struct clp_strings {
    struct clp_arena arena;
    struct clp_string **buckets;
    struct clp_string *free[CLP_STRINGS_CLASSES];
    uint32_t count;
};

int clp_strings_init(struct clp_strings *s, size_t ceiling_bytes) CLP_MUST_USE;
void clp_strings_done(struct clp_strings *s);

/* The text with one use more; NULL for the empty text, at the ceiling (counted in arena.refused),
 * or when longer than CLP_STRING_MAX_BYTES. */
struct clp_string *clp_strings_take(struct clp_strings *s, const char *text, size_t len);
/* One use more of a text that is held already. NULL is allowed. */
struct clp_string *clp_strings_again(struct clp_string *string);
/* One use less. NULL is allowed. */
void clp_strings_give(struct clp_strings *s, struct clp_string *string);

size_t clp_strings_bytes(const struct clp_strings *s);

#endif
