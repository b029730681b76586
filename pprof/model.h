/* The inside of a profile, for the files of this folder that read it (encode, top) or fill it from
 * bytes (decode). Entry 0 of every table is the one that profile.h promises. */
#ifndef CLP_PPROF_MODEL_H
#define CLP_PPROF_MODEL_H

#include "base/map.h"
#include "pprof/intern.h"
#include "pprof/profile.h"

/* Totals stay within what a double counts exactly. */
#define CLP_PROFILE_TOTAL_MAX 9007199254740992.0 /* 2^53 */

/* All fields that hold text are numbers in the string table. No struct here has padding. */
struct clp_model_mapping {
    uint64_t start, limit, file_offset;
    uint32_t filename, build_id;
    uint32_t flags; /* CLP_MODEL_HAS_* */
    uint32_t reserved;
};
enum {
    CLP_MODEL_HAS_FUNCTIONS = 1 << 0,
    CLP_MODEL_HAS_FILENAMES = 1 << 1,
    CLP_MODEL_HAS_LINE_NUMBERS = 1 << 2,
    CLP_MODEL_HAS_INLINE_FRAMES = 1 << 3,
};
struct clp_model_function {
    uint32_t name, system_name, filename, start_line;
};
struct clp_model_location {
    uint64_t address;
    uint32_t mapping;
    uint32_t lines; /* number in the table of line lists */
};
struct clp_model_label {
    uint32_t key;
    uint32_t str;  /* 0: a number */
    uint32_t unit; /* of the number */
    uint32_t reserved;
    int64_t num;
};
struct clp_model_sample {
    uint32_t stack, labels;
};
struct clp_model_value_type {
    uint32_t type, unit;
};

struct clp_profile {
    struct clp_seqs strings;  /* of char, each with its NUL */
    struct clp_rows mappings; /* struct clp_model_mapping */
    struct clp_rows functions;
    struct clp_seqs lines; /* of struct clp_profile_line */
    struct clp_rows locations;
    struct clp_seqs stacks;     /* of uint32_t locations, leaf first */
    struct clp_seqs label_sets; /* of struct clp_model_label, ordered by the key's text */
    uint32_t *late_sets;        /* label set -> the one that came late, or 0 */
    uint32_t late_count;
    struct clp_rows samples;
    double *values; /* value_count for each sample */
    uint32_t values_cap;
    double totals[CLP_PROFILE_VALUES_MAX]; /* guards TOTAL_MAX */
    struct clp_map label_forms;            /* key -> form; one key has one form */

    uint32_t value_count;
    struct clp_model_value_type value_types[CLP_PROFILE_VALUES_MAX];
    uint32_t default_value; /* index of the default sample type */
    struct clp_model_value_type period_type;
    int64_t period;
    uint64_t start_unix_ns, duration_ns;
    char *comments[CLP_PROFILE_COMMENTS_MAX];
    uint32_t comment_count;
    struct clp_profile_counts counts;
};

/* The text of a string number. Valid until the next addition. */
const char *clp_model_text(const struct clp_profile *p, uint32_t string);
const struct clp_model_mapping *clp_model_mapping(const struct clp_profile *p, uint32_t id);
const struct clp_model_function *clp_model_function(const struct clp_profile *p, uint32_t id);
const struct clp_model_location *clp_model_location(const struct clp_profile *p, uint32_t id);
const struct clp_profile_line *
clp_model_lines(const struct clp_profile *p, const struct clp_model_location *l, uint32_t *ret_len);
const uint32_t *clp_model_stack(const struct clp_profile *p, uint32_t id, uint32_t *ret_len);
const struct clp_model_label *clp_model_labels(const struct clp_profile *p, uint32_t id,
                                               uint32_t *ret_len);
const struct clp_model_sample *clp_model_sample(const struct clp_profile *p, uint32_t at);

/* clp_profile_add without counting a stack that is [other] already. */
void clp_model_add(struct clp_profile *p, uint32_t stack, uint32_t labels, const double *values);

/* The whole-number values of sample type `value`, one for each sample, by largest remainder: each
 * is the value's floor or the next number, and their sum is the rounded sum. `ret` has room for
 * p->samples.len numbers. 0 or -ENOMEM. */
int clp_model_round(const struct clp_profile *p, size_t value, int64_t *ret) CLP_MUST_USE;

#endif
