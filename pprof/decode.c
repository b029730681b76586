#include "pprof/decode.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "pprof/gzip.h"
#include "pprof/model.h"
#include "pprof/profile.pb-c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct decoder {
    const Pprof__Profile *m;
    struct clp_profile *p;
    /* The file's ids -> ours. */
    struct clp_map mappings, functions, locations;
    uint32_t *stack; /* CLP_PROFILE_FRAMES_MAX + 1: one more shows a stack that is too deep */
    const char *why;
};

static int bad(struct decoder *d, const char *why)
{
    d->why = why;
    return -EBADMSG;
}

/* ---- unpacking with bounded memory ---------------------------------------------------------- */

/* Two bytes of input may ask for a hundred of memory, so the input's size alone is no bound. */
struct budget {
    size_t left;
    int error;
};

static void *budget_alloc(void *data, size_t size)
{
    struct budget *b = data;
    if (size > b->left) {
        b->error = -EFBIG;
        return NULL;
    }
    void *p = malloc(size ? size : 1);
    if (p)
        b->left -= size;
    else
        b->error = -ENOMEM;
    return p;
}

static void budget_free(void *data, void *p)
{
    (void)data;
    free(p);
}

static int unpack(const uint8_t *data, size_t len, Pprof__Profile **ret)
{
    struct budget budget = {.left = CLP_DECODE_UNPACK_MAX_BYTES};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &budget};
    *ret = pprof__profile__unpack(&allocator, len, data);
    if (*ret)
        return 0;
    return budget.error ? budget.error : -EBADMSG;
}

static void free_message(Pprof__Profile **m)
{
    ProtobufCAllocator allocator = {budget_alloc, budget_free, NULL};
    if (*m)
        pprof__profile__free_unpacked(*m, &allocator);
}

/* ---- checked parts -------------------------------------------------------------------------- */

/* The text of an index; "" for what is not there (*ok becomes false then). */
static const char *text(const struct decoder *d, int64_t index, bool *ok)
{
    if (index >= 0 && (uint64_t)index < d->m->n_string_table)
        return d->m->string_table[index];
    *ok = false;
    return "";
}

static const char *text_or_null(const struct decoder *d, int64_t index, bool *ok)
{
    return index == 0 ? NULL : text(d, index, ok);
}

static int note_id(struct clp_map *ids, uint64_t id, uint32_t ours)
{
    if (id == 0 || clp_map_get_u64(ids, id))
        return -EBADMSG;
    return clp_map_put_u64(ids, id, (union clp_map_value){.u64 = ours});
}

static bool known_id(const struct clp_map *ids, uint64_t id, uint32_t *ret)
{
    const union clp_map_value *v = clp_map_get_u64(ids, id);
    if (v)
        *ret = (uint32_t)v->u64;
    return v != NULL;
}

static uint32_t line_number(int64_t line)
{
    return line > 0 && line <= INT32_MAX ? (uint32_t)line : 0;
}

static int read_types(struct decoder *d, const struct clp_profile_limits *limits)
{
    const Pprof__Profile *m = d->m;
    struct clp_value_type types[CLP_PROFILE_VALUES_MAX];
    struct clp_profile_config config = {
        .sample_types = types, .sample_type_count = m->n_sample_type, .period = m->period};
    bool ok = true;
    if (m->n_string_table == 0 || m->string_table[0][0] != '\0')
        return bad(d, "the string table does not begin with an empty text");
    if (m->n_sample_type == 0 || m->n_sample_type > CLP_PROFILE_VALUES_MAX)
        return bad(d, "there are no sample types, or too many");
    for (size_t i = 0; i < m->n_sample_type; i++) {
        types[i].type = text(d, m->sample_type[i]->type, &ok);
        types[i].unit = text(d, m->sample_type[i]->unit, &ok);
    }
    if (m->period_type && *text(d, m->period_type->type, &ok)) {
        config.period_type.type = text(d, m->period_type->type, &ok);
        config.period_type.unit = text(d, m->period_type->unit, &ok);
    }
    const char *preferred = text(d, m->default_sample_type, &ok);
    if (!ok)
        return bad(d, "a type's name is outside the string table");
    for (size_t i = 0; i < m->n_sample_type; i++)
        if (strcmp(types[i].type, preferred) == 0)
            config.default_sample_type = preferred; /* else it names nothing: the last one */
    if (limits)
        config.limits = *limits;
    return clp_profile_new(&config, &d->p);
}

static int read_mappings(struct decoder *d)
{
    for (size_t i = 0; i < d->m->n_mapping; i++) {
        const Pprof__Mapping *m = d->m->mapping[i];
        bool ok = true;
        struct clp_profile_mapping ours = {
            .start = m->memory_start,
            .limit = m->memory_limit,
            .file_offset = m->file_offset,
            .filename = text_or_null(d, m->filename, &ok),
            .build_id = text_or_null(d, m->build_id, &ok),
            .has_functions = m->has_functions,
            .has_filenames = m->has_filenames,
            .has_line_numbers = m->has_line_numbers,
            .has_inline_frames = m->has_inline_frames,
        };
        if (!ok)
            return bad(d, "a mapping's text is outside the string table");
        int r = note_id(&d->mappings, m->id, clp_profile_mapping(d->p, &ours));
        if (r < 0)
            return r == -EBADMSG ? bad(d, "a mapping's id is 0 or not its own") : r;
    }
    return 0;
}

static int read_functions(struct decoder *d)
{
    for (size_t i = 0; i < d->m->n_function; i++) {
        const Pprof__Function *f = d->m->function[i];
        bool ok = true;
        struct clp_profile_function ours = {
            .name = text(d, f->name, &ok),
            .system_name = text(d, f->system_name, &ok),
            .filename = text_or_null(d, f->filename, &ok),
            .start_line = line_number(f->start_line),
        };
        if (!ok)
            return bad(d, "a function's text is outside the string table");
        int r = note_id(&d->functions, f->id, clp_profile_function(d->p, &ours));
        if (r < 0)
            return r == -EBADMSG ? bad(d, "a function's id is 0 or not its own") : r;
    }
    return 0;
}

static int read_location(struct decoder *d, const Pprof__Location *l)
{
    struct clp_profile_line lines[CLP_PROFILE_LINES_MAX + 1];
    struct clp_profile_location ours = {.address = l->address, .lines = lines};
    if (l->mapping_id != 0 && !known_id(&d->mappings, l->mapping_id, &ours.mapping))
        return bad(d, "a location names a mapping that is not there");
    for (size_t i = 0; i < l->n_line; i++) {
        uint32_t function;
        if (!known_id(&d->functions, l->line[i]->function_id, &function))
            return bad(d, "a location names a function that is not there");
        if (i < CLP_ARRAY_LEN(lines))
            lines[i] = (struct clp_profile_line){function, line_number(l->line[i]->line)};
    }
    ours.line_count = CLP_MIN(l->n_line, CLP_ARRAY_LEN(lines));
    int r = note_id(&d->locations, l->id, clp_profile_location(d->p, &ours));
    return r == -EBADMSG ? bad(d, "a location's id is 0 or not its own") : r;
}

static int read_labels(struct decoder *d, const Pprof__Sample *s, uint32_t *ret)
{
    struct clp_profile_label labels[CLP_PROFILE_LABELS_MAX];
    size_t count = CLP_MIN(s->n_label, CLP_ARRAY_LEN(labels));
    bool ok = true;
    for (size_t i = 0; i < count; i++) {
        const Pprof__Label *l = s->label[i];
        labels[i] = (struct clp_profile_label){
            .key = text(d, l->key, &ok),
            .str = text_or_null(d, l->str, &ok),
            .num = l->num,
            .unit = text_or_null(d, l->num_unit, &ok),
        };
    }
    if (!ok)
        return bad(d, "a label's text is outside the string table");
    d->p->counts.labels_refused += s->n_label - count;
    *ret = clp_profile_labels(d->p, labels, count);
    return 0;
}

static int read_stack(struct decoder *d, const Pprof__Sample *s, uint32_t *ret)
{
    for (size_t i = 0; i < s->n_location_id; i++) {
        uint32_t location;
        if (!known_id(&d->locations, s->location_id[i], &location))
            return bad(d, "a sample names a location that is not there");
        if (i <= CLP_PROFILE_FRAMES_MAX)
            d->stack[i] = location;
    }
    size_t count = CLP_MIN(s->n_location_id, (size_t)CLP_PROFILE_FRAMES_MAX + 1);
    *ret = clp_profile_stack(d->p, d->stack, count);
    return 0;
}

/* Whether this stack was [other] in the file already, so that nothing is folded by us. */
static bool was_other(const struct decoder *d, const Pprof__Sample *s)
{
    const struct clp_profile_counts *c = &d->p->counts;
    return s->n_location_id == 1 && d->stack[0] == CLP_PROFILE_OTHER_LOCATION &&
           c->strings_full + c->functions_full + c->locations_full + c->no_memory == 0;
}

static int read_sample(struct decoder *d, const Pprof__Sample *s)
{
    double values[CLP_PROFILE_VALUES_MAX];
    uint32_t stack = CLP_PROFILE_OTHER_STACK, labels = CLP_PROFILE_NO_LABELS;
    if (s->n_value != d->m->n_sample_type)
        return bad(d, "a sample has another number of values than there are sample types");
    for (size_t i = 0; i < s->n_value; i++) {
        if (s->value[i] < 0)
            return bad(d, "a sample has a negative value");
        values[i] = (double)s->value[i];
    }
    int r = read_stack(d, s, &stack);
    if (r == 0)
        r = read_labels(d, s, &labels);
    if (r < 0)
        return r;
    if (stack == CLP_PROFILE_OTHER_STACK && was_other(d, s))
        clp_model_add(d->p, stack, labels, values);
    else
        clp_profile_add(d->p, stack, labels, values);
    return d->p->counts.values_refused ? bad(d, "the values add up to more than 2^53") : 0;
}

static int read_comments(struct decoder *d)
{
    bool ok = true;
    for (size_t i = 0; i < d->m->n_comment && i < CLP_PROFILE_COMMENTS_MAX; i++) {
        int r = clp_profile_comment(d->p, "%s", text(d, d->m->comment[i], &ok));
        if (r < 0)
            return r;
    }
    return ok ? 0 : bad(d, "a comment is outside the string table");
}

static int read_all(struct decoder *d, const struct clp_profile_limits *limits)
{
    int r = read_types(d, limits);
    if (r < 0)
        return r;
    clp_profile_set_window(d->p, (uint64_t)CLP_MAX(d->m->time_nanos, (int64_t)0),
                           (uint64_t)CLP_MAX(d->m->duration_nanos, (int64_t)0));
    r = read_comments(d);
    if (r == 0)
        r = read_mappings(d);
    if (r == 0)
        r = read_functions(d);
    for (size_t i = 0; i < d->m->n_location && r == 0; i++)
        r = read_location(d, d->m->location[i]);
    for (size_t i = 0; i < d->m->n_sample && r == 0; i++)
        r = read_sample(d, d->m->sample[i]);
    return r;
}

static int decode_plain(const uint8_t *data, size_t len, const struct clp_profile_limits *limits,
                        struct clp_profile **ret, const char **why)
{
    CLP_CLEANUP(free_message) Pprof__Profile *m = NULL;
    *why = "it is no protobuf message of this kind";
    int r = unpack(data, len, &m);
    if (r < 0)
        return r;
    struct decoder d = {.m = m, .why = ""};
    /* The message's size bounds the maps. */
    clp_map_init(&d.mappings, UINT32_MAX / 2);
    clp_map_init(&d.functions, UINT32_MAX / 2);
    clp_map_init(&d.locations, UINT32_MAX / 2);
    d.stack = calloc(CLP_PROFILE_FRAMES_MAX + 1, sizeof(*d.stack));
    r = d.stack ? read_all(&d, limits) : -ENOMEM;
    free(d.stack);
    clp_map_done(&d.mappings);
    clp_map_done(&d.functions);
    clp_map_done(&d.locations);
    *why = d.why;
    if (r < 0)
        clp_profile_free(d.p);
    else
        *ret = d.p;
    return r;
}

int clp_profile_decode(const void *data, size_t len, const struct clp_profile_limits *limits,
                       struct clp_profile **ret, const char **ret_why)
{
    const char *why = "it is damaged or cut short";
    CLP_CLEANUP(clp_cleanup_free) uint8_t *plain = NULL;
    const uint8_t *bytes = data;
    int r = 0;
    if (clp_gzip_is(data, len)) {
        r = clp_gunzip(data, len, CLP_DECODE_PLAIN_MAX_BYTES, &plain, &len);
        bytes = plain;
    } else if (len > CLP_DECODE_PLAIN_MAX_BYTES) {
        r = -EFBIG;
    }
    if (r == 0)
        r = decode_plain(bytes, len, limits, ret, &why);
    if (ret_why)
        *ret_why = why;
    return r;
}
