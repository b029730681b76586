/* The profile model: what a window of samples adds up to, before it becomes pprof bytes.
 *
 * Everything is interned: equal strings, mappings, functions, locations, stacks and label sets
 * exist once, and one stack with one label set is one sample whose values are added up.  Ids are
 * small numbers, valid within their profile only.
 *
 * Nothing fails half way: when a table is full, memory is short or an id is not of this profile,
 * the stack in question is folded into the one-frame stack `[other]` and its values stay in the
 * totals; what happened is counted by reason (clp_profile_counts) and told in the encoded profile's
 * comments.
 *
 * Values are doubles, because estimators give fractions (a sample may stand for 1.4 objects). They
 * are rounded once, when read, by largest remainder over the whole profile: the sum of the rounded
 * values is the rounded sum. Whole numbers are exact: a value type's total stays within 2^53.
 *
 * A profile has one owner; not thread-safe. Strings that are passed in are copied. */
#ifndef CLP_PPROF_PROFILE_H
#define CLP_PPROF_PROFILE_H

#include "base/core/core.h"

#include <stdbool.h>

#define CLP_PROFILE_VALUES_MAX 16u   /* sample types */
#define CLP_PROFILE_LABELS_MAX 32u   /* labels of one sample */
#define CLP_PROFILE_LINES_MAX 64u    /* lines (inlined functions) of one location */
#define CLP_PROFILE_FRAMES_MAX 4096u /* locations of one stack */
#define CLP_PROFILE_COMMENTS_MAX 128u
#define CLP_PROFILE_STRING_MAX_BYTES 4096u /* a longer string is cut on a character boundary */

/* The name of the frame that stands for what the tables had no room for. */
#define CLP_PROFILE_OTHER_NAME "[other]"
/* Ids that exist in every profile. */
#define CLP_PROFILE_NO_MAPPING 0u     /* a location outside any mapping */
#define CLP_PROFILE_OTHER_FUNCTION 0u /* the function [other] */
#define CLP_PROFILE_OTHER_LOCATION 0u /* a location in [other]; a stack with it is folded whole */
#define CLP_PROFILE_OTHER_STACK 0u    /* the stack that is [other] alone */
#define CLP_PROFILE_NO_LABELS 0u      /* the empty label set */

struct clp_value_type {
    const char *type; /* "cpu" */
    const char *unit; /* "nanoseconds", "bytes", "count" */
};

/* Ceilings of the tables, in entries; 0 stands for the default. */
struct clp_profile_limits {
    uint32_t strings;      /* 65,536 */
    uint32_t string_bytes; /* 16 MiB of text in all */
    uint32_t mappings;     /* 4,096 */
    uint32_t functions;    /* 32,768 */
    uint32_t locations;    /* 131,072 */
    uint32_t stacks;       /* 65,536 */
    uint32_t stack_frames; /* 4,194,304 frames of all stacks together */
    uint32_t label_sets;   /* 65,536 */
    uint32_t samples;      /* 65,536 */
};

struct clp_profile_config {
    const struct clp_value_type *sample_types; /* their order is the order of values everywhere */
    size_t sample_type_count;                  /* 1 to CLP_PROFILE_VALUES_MAX */
    const char *default_sample_type;           /* a type's name; NULL: the last one */
    struct clp_value_type period_type;         /* both NULL: the last sample type */
    int64_t period;                            /* in the period type's unit; only informative */
    struct clp_profile_limits limits;
};

struct clp_profile;

/* 0, -EINVAL (no or too many types, a default that is none of them), -ENOMEM. */
int clp_profile_new(const struct clp_profile_config *config, struct clp_profile **ret) CLP_MUST_USE;
/* Accepts NULL; returns NULL. */
struct clp_profile *clp_profile_free(struct clp_profile *p);
/* For CLP_CLEANUP. */
void clp_profile_freep(struct clp_profile **p);

/* The window: Unix time of its start and its length. */
void clp_profile_set_window(struct clp_profile *p, uint64_t start_unix_ns, uint64_t duration_ns);
/* A line for people. 0, -ENOSPC beyond CLP_PROFILE_COMMENTS_MAX or at the string ceiling, -ENOMEM.
 */
int clp_profile_comment(struct clp_profile *p, const char *fmt, ...) CLP_PRINTF(2, 3) CLP_MUST_USE;

/* ---- tables: each gives the id of the entry, made when it is new ----------------------------- */

struct clp_profile_mapping {
    uint64_t start, limit, file_offset; /* limit: the first address behind it */
    const char *filename;               /* NULL: none */
    const char *build_id;               /* lower-case hex; NULL: none */
    bool has_functions, has_filenames, has_line_numbers, has_inline_frames;
};
/* The first mapping is the main binary in the eyes of pprof. CLP_PROFILE_NO_MAPPING when full. */
uint32_t clp_profile_mapping(struct clp_profile *p, const struct clp_profile_mapping *m);

struct clp_profile_function {
    const char *name;        /* for people */
    const char *system_name; /* as the runtime or linker knows it; NULL: the same as name */
    const char *filename;    /* source file; NULL: unknown */
    uint32_t start_line;     /* 0: unknown */
};
/* CLP_PROFILE_OTHER_FUNCTION when full. */
uint32_t clp_profile_function(struct clp_profile *p, const struct clp_profile_function *f);

struct clp_profile_line {
    uint32_t function;
    uint32_t line; /* 0: unknown */
};
struct clp_profile_location {
    uint32_t mapping;                     /* or CLP_PROFILE_NO_MAPPING */
    uint64_t address;                     /* of the call, not of the return; 0: unknown */
    const struct clp_profile_line *lines; /* innermost inlined function first */
    size_t line_count; /* 0 for code without a name, which then needs a mapping */
};
/* CLP_PROFILE_OTHER_LOCATION when full, or when a line is in [other]. */
uint32_t clp_profile_location(struct clp_profile *p, const struct clp_profile_location *l);
/* The usual case: one function, without mapping, address or line. */
uint32_t clp_profile_frame(struct clp_profile *p, const char *name);

/* `locations` from the leaf to the root. CLP_PROFILE_OTHER_STACK when full, too deep or empty, or
 * when it has a location in [other]. */
uint32_t clp_profile_stack(struct clp_profile *p, const uint32_t *locations, size_t count);

struct clp_profile_label {
    const char *key;
    const char *str;  /* NULL: a number */
    int64_t num;      /* when str is NULL */
    const char *unit; /* of the number; NULL: none, and pprof takes the key for the unit */
};
/* The order does not matter. A label with an empty text says nothing and is left out. A label is
 * left out, and counted, when its key is empty or came already in this set, or had the other form
 * (text, number, another unit) before in this profile. A text that the string table has no room for
 * becomes "[other]". CLP_PROFILE_NO_LABELS when full. */
uint32_t clp_profile_labels(struct clp_profile *p, const struct clp_profile_label *labels,
                            size_t count);

/* Adds the text label `add` to every label set that has the text label `key`, for what becomes
 * known only after the samples: `text_of` gives the text from the key's, or NULL for none. Ids stay
 * what they are. A set that the table has no room for stays as it is, and is counted. Once in a
 * profile's life, after its last sample. */
void clp_profile_label_late(struct clp_profile *p, const char *key, const char *add,
                            const char *(*text_of)(void *user, const char *value), void *user);

/* Adds `values` (one per sample type) to the sample of that stack and label set. A value that is
 * negative, not finite, or would take a type's total beyond 2^53 counts as 0, and is counted. */
void clp_profile_add(struct clp_profile *p, uint32_t stack, uint32_t labels, const double *values);

/* ---- reading -------------------------------------------------------------------------------- */

/* What did not fit, by reason (pprof/counts.def), since the profile was made. */
struct clp_profile_counts {
#define CLP_PROFILE_COUNT(field, text) uint64_t field;
#include "pprof/counts.def"
#undef CLP_PROFILE_COUNT
};
const struct clp_profile_counts *clp_profile_counts(const struct clp_profile *p);

size_t clp_profile_value_count(const struct clp_profile *p);
/* Index of a sample type by its name, or -ENOENT. */
int clp_profile_value_index(const struct clp_profile *p, const char *type) CLP_MUST_USE;
/* Distinct samples so far, [other] included once it was used. */
size_t clp_profile_sample_count(const struct clp_profile *p);
/* The exact, unrounded total of a sample type. */
double clp_profile_total(const struct clp_profile *p, size_t value);

#endif
