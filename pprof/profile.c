#include "pprof/profile.h"
#include "base/core/text.h"
#include "base/vec.h"
#include "pprof/model.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABEL_KEYS_MAX 1024u
/* What every profile holds before the first sample comes on top of the caller's ceilings. */
#define OWN_STRINGS (2u + 2u * CLP_PROFILE_VALUES_MAX + 2u)
#define OWN_STRING_BYTES (OWN_STRINGS * CLP_PROFILE_STRING_MAX_BYTES)

static_assert(sizeof(struct clp_model_mapping) == 40, "compared as bytes");
static_assert(sizeof(struct clp_model_location) == 16, "compared as bytes");
static_assert(sizeof(struct clp_model_label) == 24, "compared as bytes");

/* ---- tables --------------------------------------------------------------------------------- */

/* Counts why an entry was not made. */
static void count_failure(struct clp_profile *p, int64_t error, uint64_t *when_full)
{
    if (error == -ENOMEM)
        p->counts.no_memory++;
    else
        ++*when_full;
}

/* Cleaned and bounded text to a string number, or negative errno (counted). */
static int64_t string_n(struct clp_profile *p, const char *s, size_t len)
{
    char clean[CLP_PROFILE_STRING_MAX_BYTES + 1];
    struct clp_text t = clp_text_in(clean, sizeof(clean));
    clp_text_utf8_clean(&t, s, len);
    if (t.cut)
        p->counts.strings_cut++;
    int64_t id = clp_seqs_intern(&p->strings, clean, (uint32_t)t.len + 1);
    if (id < 0)
        count_failure(p, id, &p->counts.strings_full);
    return id;
}

static int64_t string(struct clp_profile *p, const char *s)
{
    return s ? string_n(p, s, strlen(s)) : 0;
}

/* For details that may be missing: a text without room is no text. */
static uint32_t string_or_none(struct clp_profile *p, const char *s)
{
    int64_t id = string(p, s);
    return id < 0 ? 0 : (uint32_t)id;
}

uint32_t clp_profile_mapping(struct clp_profile *p, const struct clp_profile_mapping *m)
{
    struct clp_model_mapping row = {
        .start = m->start,
        .limit = m->limit,
        .file_offset = m->file_offset,
        .filename = string_or_none(p, m->filename),
        .build_id = string_or_none(p, m->build_id),
        .flags = (m->has_functions ? CLP_MODEL_HAS_FUNCTIONS : 0u) |
                 (m->has_filenames ? CLP_MODEL_HAS_FILENAMES : 0u) |
                 (m->has_line_numbers ? CLP_MODEL_HAS_LINE_NUMBERS : 0u) |
                 (m->has_inline_frames ? CLP_MODEL_HAS_INLINE_FRAMES : 0u),
    };
    int64_t id = clp_rows_intern(&p->mappings, &row);
    if (id >= 0)
        return (uint32_t)id;
    count_failure(p, id, &p->counts.mappings_full);
    return CLP_PROFILE_NO_MAPPING;
}

uint32_t clp_profile_function(struct clp_profile *p, const struct clp_profile_function *f)
{
    int64_t name = string(p, f->name);
    if (name < 0)
        return CLP_PROFILE_OTHER_FUNCTION;
    struct clp_model_function row = {
        .name = (uint32_t)name,
        .system_name = f->system_name ? string_or_none(p, f->system_name) : (uint32_t)name,
        .filename = string_or_none(p, f->filename),
        .start_line = f->start_line,
    };
    int64_t id = clp_rows_intern(&p->functions, &row);
    if (id >= 0)
        return (uint32_t)id;
    count_failure(p, id, &p->counts.functions_full);
    return CLP_PROFILE_OTHER_FUNCTION;
}

static bool usable_lines(const struct clp_profile *p, const struct clp_profile_location *l)
{
    if (l->line_count == 0)
        return l->mapping != CLP_PROFILE_NO_MAPPING;
    for (size_t i = 0; i < l->line_count; i++)
        if (l->lines[i].function == CLP_PROFILE_OTHER_FUNCTION ||
            l->lines[i].function >= p->functions.len)
            return false;
    return true;
}

uint32_t clp_profile_location(struct clp_profile *p, const struct clp_profile_location *l)
{
    if (l->line_count > CLP_PROFILE_LINES_MAX) {
        p->counts.locations_full++;
        return CLP_PROFILE_OTHER_LOCATION;
    }
    if (!usable_lines(p, l))
        return CLP_PROFILE_OTHER_LOCATION;
    int64_t id = clp_seqs_intern(&p->lines, l->lines, (uint32_t)l->line_count);
    if (id >= 0) {
        struct clp_model_location row = {
            .address = l->address,
            .mapping = l->mapping < p->mappings.len ? l->mapping : CLP_PROFILE_NO_MAPPING,
            .lines = (uint32_t)id,
        };
        id = clp_rows_intern(&p->locations, &row);
    }
    if (id >= 0)
        return (uint32_t)id;
    count_failure(p, id, &p->counts.locations_full);
    return CLP_PROFILE_OTHER_LOCATION;
}

uint32_t clp_profile_frame(struct clp_profile *p, const char *name)
{
    struct clp_profile_line line = {
        .function = clp_profile_function(p, &(struct clp_profile_function){.name = name})};
    return clp_profile_location(p, &(struct clp_profile_location){.lines = &line, .line_count = 1});
}

uint32_t clp_profile_stack(struct clp_profile *p, const uint32_t *locations, size_t count)
{
    if (count > CLP_PROFILE_FRAMES_MAX) {
        p->counts.stacks_full++;
        return CLP_PROFILE_OTHER_STACK;
    }
    for (size_t i = 0; i < count; i++)
        if (locations[i] == CLP_PROFILE_OTHER_LOCATION || locations[i] >= p->locations.len)
            return CLP_PROFILE_OTHER_STACK;
    int64_t id =
        count ? clp_seqs_intern(&p->stacks, locations, (uint32_t)count) : CLP_PROFILE_OTHER_STACK;
    if (id >= 0)
        return (uint32_t)id;
    count_failure(p, id, &p->counts.stacks_full);
    return CLP_PROFILE_OTHER_STACK;
}

/* ---- labels --------------------------------------------------------------------------------- */

/* Whether this key always had this form; a new key takes it. */
static bool keeps_form(struct clp_profile *p, const struct clp_model_label *l)
{
    uint64_t form = l->str ? 0 : ((uint64_t)l->unit << 1) | 1;
    union clp_map_value *known = clp_map_get_u64(&p->label_forms, l->key);
    if (known)
        return known->u64 == form;
    int r = clp_map_put_u64(&p->label_forms, l->key, (union clp_map_value){.u64 = form});
    p->counts.no_memory += r == -ENOMEM;
    return r == 0;
}

static uint32_t label_text(struct clp_profile *p, const char *s)
{
    int64_t id = string(p, s);
    /* [other] is there since the profile was made. */
    return id < 0 ? clp_model_function(p, CLP_PROFILE_OTHER_FUNCTION)->name : (uint32_t)id;
}

/* The place of a key in an ordered set; *ret_there tells whether the key is in it already. */
static uint32_t label_place(const struct clp_profile *p, const struct clp_model_label *set,
                            uint32_t len, uint32_t key, bool *ret_there)
{
    uint32_t at = 0;
    *ret_there = false;
    while (at < len) {
        int order = strcmp(clp_model_text(p, set[at].key), clp_model_text(p, key));
        *ret_there = order == 0;
        if (order >= 0)
            break;
        at++;
    }
    return at;
}

static bool add_label(struct clp_profile *p, struct clp_model_label *set, uint32_t *len,
                      const struct clp_profile_label *l)
{
    int64_t key = string(p, l->key);
    if (key <= 0 || *len == CLP_PROFILE_LABELS_MAX)
        return false;
    struct clp_model_label row = {.key = (uint32_t)key};
    if (l->str) {
        row.str = label_text(p, l->str);
    } else {
        row.num = l->num;
        row.unit = string_or_none(p, l->unit);
    }
    bool there;
    uint32_t at = label_place(p, set, *len, row.key, &there);
    if (there || !keeps_form(p, &row))
        return false;
    memmove(set + at + 1, set + at, (*len - at) * sizeof(*set));
    set[at] = row;
    ++*len;
    return true;
}

uint32_t clp_profile_labels(struct clp_profile *p, const struct clp_profile_label *labels,
                            size_t count)
{
    struct clp_model_label set[CLP_PROFILE_LABELS_MAX];
    uint32_t len = 0;
    for (size_t i = 0; i < count; i++) {
        bool says_nothing = labels[i].str && labels[i].str[0] == '\0';
        if (!says_nothing && !add_label(p, set, &len, &labels[i]))
            p->counts.labels_refused++;
    }
    int64_t id = clp_seqs_intern(&p->label_sets, set, len);
    if (id >= 0)
        return (uint32_t)id;
    count_failure(p, id, &p->counts.label_sets_full);
    return CLP_PROFILE_NO_LABELS;
}

/* The text that a set's label `key` has, copied; false when it has none. */
static bool text_of_label(const struct clp_profile *p, uint32_t id, const char *key, char *ret,
                          size_t cap)
{
    uint32_t len;
    const struct clp_model_label *l = clp_model_labels(p, id, &len);
    for (uint32_t i = 0; i < len; i++) {
        if (!l[i].str || strcmp(clp_model_text(p, l[i].key), key) != 0)
            continue;
        snprintf(ret, cap, "%s", clp_model_text(p, l[i].str));
        return true;
    }
    return false;
}

static uint32_t extended_set(struct clp_profile *p, uint32_t id,
                             const struct clp_profile_label *add)
{
    struct clp_model_label set[CLP_PROFILE_LABELS_MAX];
    uint32_t len;
    const struct clp_model_label *old = clp_model_labels(p, id, &len);
    memcpy(set, old, len * sizeof(*set));
    if (!add_label(p, set, &len, add)) {
        p->counts.labels_refused++;
        return 0;
    }
    int64_t made = clp_seqs_intern(&p->label_sets, set, len);
    if (made >= 0)
        return (uint32_t)made;
    count_failure(p, made, &p->counts.label_sets_full);
    return 0;
}

void clp_profile_label_late(struct clp_profile *p, const char *key, const char *add,
                            const char *(*text_of)(void *user, const char *value), void *user)
{
    uint32_t count = p->label_sets.len;
    char value[CLP_PROFILE_STRING_MAX_BYTES + 1];
    uint32_t *late = p->late_sets ? NULL : calloc(count, sizeof(*late));
    if (!late) {
        p->counts.no_memory += p->late_sets == NULL;
        return;
    }
    for (uint32_t id = 0; id < count; id++) {
        const char *text =
            text_of_label(p, id, key, value, sizeof(value)) ? text_of(user, value) : NULL;
        if (text && *text)
            late[id] = extended_set(p, id, &(struct clp_profile_label){.key = add, .str = text});
    }
    p->late_sets = late;
    p->late_count = count;
}

/* ---- samples -------------------------------------------------------------------------------- */

/* The sample of that stack and label set, made when it is new, or negative errno. */
static int64_t sample_row(struct clp_profile *p, uint32_t stack, uint32_t labels)
{
    struct clp_model_sample row = {.stack = stack, .labels = labels};
    int64_t at = clp_rows_find(&p->samples, &row);
    if (at >= 0)
        return at;
    size_t first_value = (size_t)p->samples.len * p->value_count;
    int r = CLP_VEC_GROW(p->values, p->values_cap, (uint32_t)first_value + p->value_count,
                         p->samples.ceiling * p->value_count);
    if (r < 0)
        return r;
    memset(p->values + first_value, 0, p->value_count * sizeof(*p->values));
    return clp_rows_intern(&p->samples, &row);
}

static uint32_t sample_or_other(struct clp_profile *p, uint32_t stack, uint32_t labels)
{
    int64_t at = sample_row(p, stack, labels);
    if (at >= 0)
        return (uint32_t)at;
    count_failure(p, at, &p->counts.samples_full);
    p->counts.samples_folded += stack != CLP_PROFILE_OTHER_STACK;
    at = sample_row(p, CLP_PROFILE_OTHER_STACK, labels);
    return at < 0 ? 0 : (uint32_t)at; /* sample 0: [other] without labels */
}

static double usable_value(struct clp_profile *p, uint32_t value, double v)
{
    if (v == 0)
        return 0;
    if (isfinite(v) && v > 0 && v <= CLP_PROFILE_TOTAL_MAX - p->totals[value])
        return v;
    p->counts.values_refused++;
    return 0;
}

void clp_model_add(struct clp_profile *p, uint32_t stack, uint32_t labels, const double *values)
{
    uint32_t at = sample_or_other(p, stack, labels);
    double *sum = p->values + (size_t)at * p->value_count;
    for (uint32_t i = 0; i < p->value_count; i++) {
        double v = usable_value(p, i, values[i]);
        sum[i] += v;
        p->totals[i] += v;
    }
}

void clp_profile_add(struct clp_profile *p, uint32_t stack, uint32_t labels, const double *values)
{
    if (stack >= p->stacks.len)
        stack = CLP_PROFILE_OTHER_STACK;
    if (labels >= p->label_sets.len)
        labels = CLP_PROFILE_NO_LABELS;
    p->counts.samples_folded += stack == CLP_PROFILE_OTHER_STACK;
    clp_model_add(p, stack, labels, values);
}

/* ---- life ----------------------------------------------------------------------------------- */

static uint32_t or_default(uint32_t limit, uint32_t standard)
{
    /* Numbers stay far from where the arithmetic on them would wrap. */
    return CLP_MIN(limit ? limit : standard, 1u << 26);
}

static void init_tables(struct clp_profile *p, const struct clp_profile_limits *l)
{
    uint32_t locations = or_default(l->locations, 131072) + 1;
    clp_seqs_init(&p->strings, 1, or_default(l->strings, 65536) + OWN_STRINGS,
                  or_default(l->string_bytes, 16u << 20) + OWN_STRING_BYTES);
    clp_rows_init(&p->mappings, sizeof(struct clp_model_mapping),
                  or_default(l->mappings, 4096) + 1);
    clp_rows_init(&p->functions, sizeof(struct clp_model_function),
                  or_default(l->functions, 32768) + 1);
    clp_seqs_init(&p->lines, sizeof(struct clp_profile_line), locations + 1, 4 * locations);
    clp_rows_init(&p->locations, sizeof(struct clp_model_location), locations);
    clp_seqs_init(&p->stacks, sizeof(uint32_t), or_default(l->stacks, 65536) + 1,
                  or_default(l->stack_frames, 4u << 20) + 1);
    clp_seqs_init(&p->label_sets, sizeof(struct clp_model_label),
                  or_default(l->label_sets, 65536) + 1,
                  8 * or_default(l->label_sets, 65536) + CLP_PROFILE_LABELS_MAX);
    clp_rows_init(&p->samples, sizeof(struct clp_model_sample), or_default(l->samples, 65536) + 1);
    clp_map_init(&p->label_forms, LABEL_KEYS_MAX);
}

/* Entry 0 of every table. */
static int make_first_entries(struct clp_profile *p)
{
    const struct clp_model_mapping no_mapping = {0};
    int64_t empty = string(p, "");
    int64_t other = string(p, CLP_PROFILE_OTHER_NAME);
    if (empty < 0 || other < 0)
        return -ENOMEM;
    const struct clp_model_function f = {.name = (uint32_t)other, .system_name = (uint32_t)other};
    const struct clp_profile_line line = {.function = CLP_PROFILE_OTHER_FUNCTION};
    const struct clp_model_location l = {.lines = 0};
    const uint32_t stack = CLP_PROFILE_OTHER_LOCATION;
    if (clp_rows_intern(&p->mappings, &no_mapping) < 0 || clp_rows_intern(&p->functions, &f) < 0 ||
        clp_seqs_intern(&p->lines, &line, 1) < 0 || clp_rows_intern(&p->locations, &l) < 0 ||
        clp_seqs_intern(&p->stacks, &stack, 1) < 0 ||
        clp_seqs_intern(&p->label_sets, NULL, 0) < 0 ||
        sample_row(p, CLP_PROFILE_OTHER_STACK, CLP_PROFILE_NO_LABELS) < 0)
        return -ENOMEM;
    return 0;
}

static int set_value_type(struct clp_profile *p, const struct clp_value_type *t,
                          struct clp_model_value_type *ret)
{
    int64_t type = string(p, t->type);
    int64_t unit = string(p, t->unit);
    if (type < 0 || unit < 0)
        return -ENOMEM;
    *ret = (struct clp_model_value_type){.type = (uint32_t)type, .unit = (uint32_t)unit};
    return 0;
}

static int set_types(struct clp_profile *p, const struct clp_profile_config *c)
{
    int r = 0;
    p->value_count = (uint32_t)c->sample_type_count;
    for (uint32_t i = 0; i < p->value_count && r == 0; i++)
        r = set_value_type(p, &c->sample_types[i], &p->value_types[i]);
    if (r < 0)
        return r;
    p->default_value = p->value_count - 1;
    p->period_type = p->value_types[p->value_count - 1];
    p->period = c->period;
    if (c->default_sample_type) {
        r = clp_profile_value_index(p, c->default_sample_type);
        if (r < 0)
            return -EINVAL;
        p->default_value = (uint32_t)r;
    }
    return c->period_type.type ? set_value_type(p, &c->period_type, &p->period_type) : 0;
}

int clp_profile_new(const struct clp_profile_config *config, struct clp_profile **ret)
{
    if (config->sample_type_count == 0 || config->sample_type_count > CLP_PROFILE_VALUES_MAX)
        return -EINVAL;
    struct clp_profile *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    init_tables(p, &config->limits);
    p->value_count = (uint32_t)config->sample_type_count;
    int r = make_first_entries(p);
    if (r == 0)
        r = set_types(p, config);
    if (r < 0) {
        clp_profile_free(p);
        return r;
    }
    *ret = p;
    return 0;
}

struct clp_profile *clp_profile_free(struct clp_profile *p)
{
    if (!p)
        return NULL;
    clp_seqs_done(&p->strings);
    clp_rows_done(&p->mappings);
    clp_rows_done(&p->functions);
    clp_seqs_done(&p->lines);
    clp_rows_done(&p->locations);
    clp_seqs_done(&p->stacks);
    clp_seqs_done(&p->label_sets);
    free(p->late_sets);
    clp_rows_done(&p->samples);
    clp_map_done(&p->label_forms);
    free(p->values);
    for (uint32_t i = 0; i < p->comment_count; i++)
        free(p->comments[i]);
    free(p);
    return NULL;
}

void clp_profile_freep(struct clp_profile **p)
{
    *p = clp_profile_free(*p);
}

void clp_profile_set_window(struct clp_profile *p, uint64_t start_unix_ns, uint64_t duration_ns)
{
    p->start_unix_ns = start_unix_ns;
    p->duration_ns = duration_ns;
}

int clp_profile_comment(struct clp_profile *p, const char *fmt, ...)
{
    char raw[CLP_PROFILE_STRING_MAX_BYTES];
    char clean[CLP_PROFILE_STRING_MAX_BYTES];
    if (p->comment_count == CLP_PROFILE_COMMENTS_MAX)
        return -ENOSPC;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(raw, sizeof(raw), fmt, args);
    va_end(args);
    if (n < 0)
        return -EINVAL;
    struct clp_text t = clp_text_in(clean, sizeof(clean));
    clp_text_utf8_clean(&t, raw, strlen(raw));
    char *copy = strdup(clean);
    if (!copy)
        return -ENOMEM;
    p->comments[p->comment_count++] = copy;
    return 0;
}
