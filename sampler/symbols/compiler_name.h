/* The names that compilers invent, taken apart: `<M>b__3_0`, `<>c__DisplayClass3_0`, `<M>d__5`, ...
 *
 * Sources: Roslyn's GeneratedNameKind and GeneratedNames (C#), GeneratedNameConstants (VB), and the
 * metadata of compiled programs.  Pure, no allocation, signal-safe. Internal to this folder. */
#ifndef CLP_SAMPLER_SYMBOLS_COMPILER_NAME_H
#define CLP_SAMPLER_SYMBOLS_COMPILER_NAME_H

#include "sampler/symbols/managed_name.h"

#include <stdbool.h>

/* `<inner>K__rest`: K is the letter that says what it is, 0 when the name ends at '>'. */
struct clp_compiler_name {
    struct clp_name_text inner;
    char kind;
    struct clp_name_text rest; /* after the letter and, where there are any, two underscores */
};
bool clp_compiler_name_parse(struct clp_name_text name, struct clp_compiler_name *ret);

enum clp_segment_kind {
    CLP_SEGMENT_PLAIN = 1,   /* a type of the source; shown is its name there */
    CLP_SEGMENT_CLOSURE = 2, /* holds lambdas and captured variables; has no name in the source */
    CLP_SEGMENT_MACHINE = 3, /* the state machine of the method `shown` (dots may be written '-') */
};

/* One type of a nesting chain, arity split off. */
struct clp_segment {
    uint8_t kind; /* enum clp_segment_kind */
    struct clp_name_text shown;
    struct clp_name_text
        ordinal; /* CLOSURE, MACHINE: the method's number in its type, may be empty */
    uint32_t arity;
};
/* `async_name` allows F#'s `name@12` as a state machine. */
void clp_segment_parse(struct clp_name_text text, bool async_name, struct clp_segment *ret);

/* ---- small text helpers, shared by the files of this folder --------------------------------- */

struct clp_name_text clp_name_text_of(const char *s);
struct clp_name_text clp_name_text_from(struct clp_name_text t, size_t from); /* rest of t */
struct clp_name_text clp_name_text_until(struct clp_name_text t, size_t until);
bool clp_name_text_equal(struct clp_name_text t, const char *s);
/* Removes `prefix` from the front of *t; false, with *t as it was, when it is not there. */
bool clp_name_text_skip(struct clp_name_text *t, const char *prefix);

/* Index of the bracket that closes the one at `open` ("<...>" or "[...]"), or t.len. */
size_t clp_name_text_close(struct clp_name_text t, size_t open);
/* First position at or after `from` of `c` outside of all brackets, or t.len. */
size_t clp_name_text_find(struct clp_name_text t, size_t from, char c);
/* Last such position, or t.len. */
size_t clp_name_text_find_last(struct clp_name_text t, char c);
/* Items of a comma-separated list: cuts the first item off *list. False when the list is empty. */
bool clp_name_text_item(struct clp_name_text *list, struct clp_name_text *ret);

#endif
