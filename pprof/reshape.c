#include "pprof/reshape.h"

#include "base/cleanup.h"
#include "pprof/model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRUNCATED_NAME "[truncated]"
#define ROUNDS_MAX 12
#define RULES_MAX 32u

struct weight {
    double weight;
    uint32_t at;
};

struct reshaper {
    const struct clp_profile *from;
    const struct clp_reshape *how;
    struct clp_profile *to;
    struct clp_reshape_value values[CLP_PROFILE_VALUES_MAX];
    uint8_t value_at[CLP_PROFILE_VALUES_MAX]; /* index in `from` */
    uint32_t value_count;
    struct weight *order; /* samples with a value, the heaviest first */
    uint32_t order_len;
    /* From the old number of an entry to the new one + 1; 0: not asked for yet. */
    uint32_t *mappings, *functions, *locations, *stacks, *label_sets;
    const char *note;               /* what made it too large; "": nothing yet */
    struct clp_map seen[RULES_MAX]; /* distinct texts of each label rule */
};

/* ---- which samples, and how heavy they are --------------------------------------------------- */

static int choose_values(struct reshaper *s)
{
    for (size_t i = 0; i < s->how->value_count && s->value_count < CLP_PROFILE_VALUES_MAX; i++) {
        int at = clp_profile_value_index(s->from, s->how->values[i].from);
        if (at < 0)
            continue;
        s->values[s->value_count] = s->how->values[i];
        s->value_at[s->value_count++] = (uint8_t)at;
    }
    return s->value_count ? 0 : -ENODATA;
}

static double value_of(const struct reshaper *s, uint32_t sample, uint32_t value)
{
    return s->from->values[(size_t)sample * s->from->value_count + s->value_at[value]];
}

/* The share of the totals, so that types with different units count alike. */
static double weigh(const struct reshaper *s, uint32_t sample)
{
    double weight = 0;
    for (uint32_t i = 0; i < s->value_count; i++) {
        double total = s->from->totals[s->value_at[i]];
        if (total > 0)
            weight += value_of(s, sample, i) / total;
    }
    return weight;
}

static int by_weight(const void *a, const void *b)
{
    const struct weight *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int order_samples(struct reshaper *s)
{
    s->order = malloc((s->from->samples.len + 1) * sizeof(*s->order));
    if (!s->order)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->from->samples.len; i++) {
        double weight = weigh(s, i);
        if (weight > 0)
            s->order[s->order_len++] = (struct weight){weight, i};
    }
    qsort(s->order, s->order_len, sizeof(*s->order), by_weight);
    return s->order_len ? 0 : -ENODATA;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static const char *text_or_null(const struct clp_profile *p, uint32_t string)
{
    return string ? clp_model_text(p, string) : NULL;
}

static uint32_t take_mapping(struct reshaper *s, uint32_t id)
{
    const struct clp_model_mapping *m = clp_model_mapping(s->from, id);
    if (id == CLP_PROFILE_NO_MAPPING)
        return CLP_PROFILE_NO_MAPPING;
    if (!s->mappings[id])
        s->mappings[id] =
            1 + clp_profile_mapping(
                    s->to, &(struct clp_profile_mapping){
                               .start = m->start,
                               .limit = m->limit,
                               .file_offset = m->file_offset,
                               .filename = text_or_null(s->from, m->filename),
                               .build_id = text_or_null(s->from, m->build_id),
                               .has_functions = m->flags & CLP_MODEL_HAS_FUNCTIONS,
                               .has_filenames = m->flags & CLP_MODEL_HAS_FILENAMES,
                               .has_line_numbers = m->flags & CLP_MODEL_HAS_LINE_NUMBERS,
                               .has_inline_frames = m->flags & CLP_MODEL_HAS_INLINE_FRAMES});
    return s->mappings[id] - 1;
}

static uint32_t take_function(struct reshaper *s, uint32_t id)
{
    const struct clp_model_function *f = clp_model_function(s->from, id);
    if (!s->functions[id])
        s->functions[id] =
            1 +
            clp_profile_function(s->to, &(struct clp_profile_function){
                                            .name = clp_model_text(s->from, f->name),
                                            .system_name = clp_model_text(s->from, f->system_name),
                                            .filename = text_or_null(s->from, f->filename),
                                            .start_line = f->start_line});
    return s->functions[id] - 1;
}

static uint32_t take_location(struct reshaper *s, uint32_t id)
{
    struct clp_profile_line lines[CLP_PROFILE_LINES_MAX];
    uint32_t count;
    if (s->locations[id])
        return s->locations[id] - 1;
    const struct clp_model_location *l = clp_model_location(s->from, id);
    const struct clp_profile_line *line = clp_model_lines(s->from, l, &count);
    for (uint32_t i = 0; i < count; i++)
        lines[i] = (struct clp_profile_line){take_function(s, line[i].function), line[i].line};
    s->locations[id] = 1 + clp_profile_location(s->to, &(struct clp_profile_location){
                                                           .mapping = take_mapping(s, l->mapping),
                                                           .address = l->address,
                                                           .lines = lines,
                                                           .line_count = count});
    return s->locations[id] - 1;
}

static uint32_t take_stack(struct reshaper *s, uint32_t id)
{
    uint32_t frames[CLP_PROFILE_FRAMES_MAX], count;
    if (id == CLP_PROFILE_OTHER_STACK)
        return CLP_PROFILE_OTHER_STACK;
    if (s->stacks[id])
        return s->stacks[id] - 1;
    const uint32_t *stack = clp_model_stack(s->from, id, &count);
    bool cut = s->how->depth_max && count > s->how->depth_max;
    uint32_t kept = cut ? s->how->depth_max - 1 : count;
    for (uint32_t i = 0; i < kept; i++)
        frames[i] = take_location(s, stack[i]);
    if (cut)
        frames[kept++] = clp_profile_frame(s->to, TRUNCATED_NAME);
    s->stacks[id] = 1 + clp_profile_stack(s->to, frames, kept);
    return s->stacks[id] - 1;
}

/* ---- labels ---------------------------------------------------------------------------------- */

static const struct clp_label_rule *rule_for(const struct reshaper *s, const char *key, size_t *ret)
{
    for (size_t i = 0; i < s->how->label_count; i++)
        if (strcmp(s->how->labels[i].from, key) == 0) {
            *ret = i;
            return &s->how->labels[i];
        }
    return NULL;
}

static bool is_hex(const char *text, size_t len)
{
    return len > 0 && strspn(text, "0123456789abcdefABCDEF") == len;
}

/* Whether this text is among the first distinct ones of its rule. */
static bool has_room(struct reshaper *s, size_t rule, uint32_t string, uint32_t most)
{
    struct clp_map *seen = &s->seen[rule];
    if (most == 0 || rule >= RULES_MAX || clp_map_get_u64(seen, string))
        return true;
    return seen->len < most && clp_map_put_u64(seen, string, (union clp_map_value){.u64 = 1}) == 0;
}

/* Whether the label stays; `number` is room for the text of a number. */
static bool spell(struct reshaper *s, const struct clp_model_label *from, char number[24],
                  struct clp_profile_label *to)
{
    size_t at = 0;
    const char *key = clp_model_text(s->from, from->key);
    const struct clp_label_rule *rule = rule_for(s, key, &at);
    if (!rule && !s->how->all_labels)
        return false;
    *to = (struct clp_profile_label){.key = rule && rule->to ? rule->to : key,
                                     .str = text_or_null(s->from, from->str),
                                     .num = from->num,
                                     .unit = text_or_null(s->from, from->unit)};
    if (!rule)
        return true;
    size_t len = to->str ? strlen(to->str) : 0;
    if (to->str && !has_room(s, at, from->str, rule->distinct_max))
        to->str = CLP_PROFILE_OTHER_NAME;
    switch (rule->form) {
    case CLP_LABEL_AS_IS:
        break;
    case CLP_LABEL_AS_TEXT:
        if (!to->str) {
            (void)snprintf(number, 24, "%" PRId64, from->num);
            to->str = number;
        }
        break;
    case CLP_LABEL_FROM_HEX:
        if (!to->str)
            break;
        if (!is_hex(to->str, len) || len > 16)
            return false;
        to->num = (int64_t)strtoull(to->str, NULL, 16);
        to->str = to->unit = NULL;
        break;
    case CLP_LABEL_HEX_OF_16:
        return to->str && is_hex(to->str, len) && (len == 16 || len == 32);
    }
    return true;
}

static uint32_t take_labels(struct reshaper *s, uint32_t id)
{
    struct clp_profile_label labels[CLP_PROFILE_LABELS_MAX];
    char numbers[CLP_PROFILE_LABELS_MAX][24];
    uint32_t count, kept = 0;
    if (id == CLP_PROFILE_NO_LABELS)
        return CLP_PROFILE_NO_LABELS;
    if (s->label_sets[id])
        return s->label_sets[id] - 1;
    const struct clp_model_label *from = clp_model_labels(s->from, id, &count);
    for (uint32_t i = 0; i < count; i++)
        if (spell(s, &from[i], numbers[kept], &labels[kept]))
            kept++;
    s->label_sets[id] = 1 + clp_profile_labels(s->to, labels, kept);
    return s->label_sets[id] - 1;
}

/* ---- one attempt ----------------------------------------------------------------------------- */

static int new_profile(struct reshaper *s)
{
    struct clp_value_type types[CLP_PROFILE_VALUES_MAX];
    const struct clp_profile *p = s->from;
    bool own = s->how->period_type.type != NULL;
    struct clp_profile_config c = {.sample_types = types,
                                   .sample_type_count = s->value_count,
                                   .period = own && s->how->period ? s->how->period : p->period,
                                   .period_type = {clp_model_text(p, p->period_type.type),
                                                   clp_model_text(p, p->period_type.unit)}};
    if (own)
        c.period_type = s->how->period_type;
    for (uint32_t i = 0; i < s->value_count; i++) {
        const struct clp_model_value_type *t = &p->value_types[s->value_at[i]];
        const struct clp_reshape_value *v = &s->values[i];
        types[i].type = v->type ? v->type : clp_model_text(p, t->type);
        types[i].unit = v->unit ? v->unit : clp_model_text(p, t->unit);
        if (s->value_at[i] == p->default_value)
            c.default_sample_type = types[i].type;
    }
    int r = clp_profile_new(&c, &s->to);
    if (r == 0)
        clp_profile_set_window(s->to, p->start_unix_ns, p->duration_ns);
    return r;
}

static int add_comments(struct reshaper *s, uint32_t kept)
{
    int r = 0;
    for (uint32_t i = 0; i < s->from->comment_count && r == 0; i++)
        r = clp_profile_comment(s->to, "%s", s->from->comments[i]);
    if (kept < s->order_len && r == 0)
        r = clp_profile_comment(s->to, "upload_samples_folded=%u count", s->order_len - kept);
    if (*s->note && r == 0)
        r = clp_profile_comment(s->to, "upload_too_large=%s", s->note);
    return r == -ENOSPC ? 0 : r; /* comments are for people: too many of them lose no sample */
}

static void forget_tables(struct reshaper *s)
{
    const struct clp_profile *p = s->from;
    memset(s->mappings, 0, p->mappings.len * sizeof(uint32_t));
    memset(s->functions, 0, p->functions.len * sizeof(uint32_t));
    memset(s->locations, 0, p->locations.len * sizeof(uint32_t));
    memset(s->stacks, 0, p->stacks.len * sizeof(uint32_t));
    memset(s->label_sets, 0, p->label_sets.len * sizeof(uint32_t));
    for (size_t i = 0; i < RULES_MAX; i++)
        clp_map_done(&s->seen[i]);
}

static void fill(struct reshaper *s, uint32_t kept)
{
    double values[CLP_PROFILE_VALUES_MAX];
    /* The first mapping stands for the main binary, whether a frame is in it or not. */
    if (s->from->mappings.len > 1)
        (void)take_mapping(s, 1);
    for (uint32_t i = 0; i < s->order_len; i++) {
        uint32_t at = s->order[i].at;
        const struct clp_model_sample *sample = clp_model_sample(s->from, at);
        for (uint32_t k = 0; k < s->value_count; k++)
            values[k] = value_of(s, at, k);
        if (i < kept)
            clp_model_add(s->to, take_stack(s, sample->stack), take_labels(s, sample->labels),
                          values);
        else
            clp_model_add(s->to, CLP_PROFILE_OTHER_STACK, CLP_PROFILE_NO_LABELS, values);
    }
}

/* The profile with its `kept` heaviest samples, encoded. */
static int attempt(struct reshaper *s, uint32_t kept, bool plain, struct clp_encoded *ret)
{
    struct clp_encode_options o = {.plain = plain};
    s->to = clp_profile_free(s->to);
    forget_tables(s);
    int r = new_profile(s);
    if (r == 0)
        r = add_comments(s, kept);
    if (r < 0)
        return r;
    fill(s, kept);
    return clp_profile_encode(s->to, &o, ret);
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* What the bytes are, roughly, in words: where to look when a profile is folded. */
static void note_size(const struct reshaper *s, const struct clp_profile *big, size_t plain_len,
                      char note[CLP_RESHAPE_NOTE_BYTES])
{
    (void)snprintf(note, CLP_RESHAPE_NOTE_BYTES,
                   "%u samples and %zu KiB: %u stacks of %u frames on average, %u functions, "
                   "%u KiB of names, %u label sets",
                   s->order_len, plain_len / 1024, big->stacks.len - 1,
                   big->stacks.len > 1 ? big->stacks.pool_len / (big->stacks.len - 1) : 0,
                   big->functions.len, big->strings.pool_len / 1024, big->label_sets.len - 1);
}

static bool fits(const struct reshaper *s, const struct clp_encoded *e)
{
    return (s->how->plain_max == 0 || e->plain_len <= s->how->plain_max) &&
           (s->how->samples_max == 0 || e->samples <= s->how->samples_max);
}

/* Fewer samples, in proportion to what is too much, with a little room to spare. */
static uint32_t next_kept(const struct reshaper *s, uint32_t kept, const struct clp_encoded *e)
{
    double share = 0.97;
    if (s->how->plain_max && e->plain_len > s->how->plain_max)
        share = 0.95 * (double)s->how->plain_max / (double)e->plain_len;
    if (s->how->samples_max && e->samples > s->how->samples_max)
        share = CLP_MIN(share, ((double)s->how->samples_max - 1) / (double)e->samples);
    return (uint32_t)((double)kept * CLP_MAX(share, 0));
}

static int fold_until_it_fits(struct reshaper *s, struct clp_reshaped *ret)
{
    bool plain = s->how->plain || s->how->model; /* who wants the model needs only the size */
    uint32_t kept = s->order_len;
    struct clp_encoded e;
    int r = -EFBIG;
    for (int round = 0; round < ROUNDS_MAX; round++) {
        if (round == ROUNDS_MAX - 1)
            kept = 0;
        r = attempt(s, kept, plain, &e);
        if (r == 0 && fits(s, &e)) {
            ret->folded = s->order_len - kept;
            ret->encoded = e;
            if (s->how->model) {
                ret->model = CLP_TAKE(s->to);
                free(CLP_TAKE(ret->encoded.data));
            }
            return 0;
        }
        if (r < 0 && r != -EFBIG)
            return r;
        if (round == 0)
            note_size(s, s->to, r == 0 ? e.plain_len : CLP_ENCODE_MAX_BYTES, ret->note);
        if (kept == 0) {
            if (r == 0)
                clp_encoded_done(&e);
            return -EFBIG;
        }
        kept = r == 0 ? next_kept(s, kept, &e) : kept / 2;
        if (r == 0)
            clp_encoded_done(&e);
    }
    return r < 0 ? r : -EFBIG;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int allocate(struct reshaper *s)
{
    const struct clp_profile *p = s->from;
    for (size_t i = 0; i < RULES_MAX; i++)
        clp_map_init(&s->seen[i], 65536);
    s->mappings = calloc(p->mappings.len, sizeof(uint32_t));
    s->functions = calloc(p->functions.len, sizeof(uint32_t));
    s->locations = calloc(p->locations.len, sizeof(uint32_t));
    s->stacks = calloc(p->stacks.len, sizeof(uint32_t));
    s->label_sets = calloc(p->label_sets.len, sizeof(uint32_t));
    bool all = s->mappings && s->functions && s->locations && s->stacks && s->label_sets;
    return all ? 0 : -ENOMEM;
}

static void release(struct reshaper *s)
{
    for (size_t i = 0; i < RULES_MAX; i++)
        clp_map_done(&s->seen[i]);
    clp_profile_free(s->to);
    free(s->order);
    free(s->mappings);
    free(s->functions);
    free(s->locations);
    free(s->stacks);
    free(s->label_sets);
}

int clp_profile_reshape(const struct clp_profile *p, const struct clp_reshape *how,
                        struct clp_reshaped *ret)
{
    struct clp_reshaped done = {.folded = 0};
    struct reshaper s = {.from = p, .how = how, .note = done.note};
    int r = allocate(&s);
    if (r == 0)
        r = choose_values(&s);
    if (r == 0)
        r = order_samples(&s);
    if (r == 0)
        r = fold_until_it_fits(&s, &done);
    release(&s);
    if (r < 0)
        return r;
    if (done.folded == 0)
        done.note[0] = '\0';
    *ret = done;
    return 0;
}

void clp_reshaped_done(struct clp_reshaped *r)
{
    clp_encoded_done(&r->encoded);
    clp_profile_free(r->model);
    *r = (struct clp_reshaped){.folded = 0};
}
