/* Kind `otlp`: OTLP/HTTP with protobuf, profiles v1development.  One request for a whole window: a
 * Profile for each sample type, one dictionary for all.
 *
 * Dictionary tables begin with the zero value, hold nothing twice and nothing that is not used. */
#include "base/cleanup.h"
#include "base/core/arena.h"
#include "base/core/text.h"
#include "pprof/gzip.h"
#include "pprof/model.h"
#include "uploader/intake.h"
#include "uploader/otlp.pb-c.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef CLP_VERSION
#define CLP_VERSION "dev"
#endif

#define PLAIN_MAX_BYTES (8u << 20) /* as pprof; collectors take 20 MiB */
#define TREE_MAX_BYTES (512u << 20)
#define RESOURCE_MAX 80u
#define PROFILE_ATTRIBUTES 1u

/* What makes an attribute what it is. No padding: it is compared as bytes. */
struct attribute {
    uint32_t key, unit;
    uint32_t str; /* string index + 1; 0: a number */
    uint32_t reserved;
    int64_t num;
};
struct link {
    uint8_t trace_id[16], span_id[8];
};

struct builder {
    const struct clp_profile *p;
    const struct clp_chunk *chunk;
    struct clp_arena arena;
    struct clp_seqs strings;
    struct clp_rows attributes, links;
    /* From the model's number to the table's; 0: not there yet. */
    uint32_t *mappings, *functions, *locations, *stacks;
    ClpOtlp__ProfilesDictionary dictionary;
    int64_t *rounded;
    int error; /* the first failure; later steps do nothing */
};

static void *take(struct builder *b, size_t bytes)
{
    void *m = b->error ? NULL : clp_arena_alloc(&b->arena, CLP_MAX(bytes, (size_t)1));
    if (!m && b->error == 0)
        b->error = -ENOMEM;
    return m;
}

static int32_t noted(struct builder *b, int64_t id)
{
    if (id < 0 && b->error == 0)
        b->error = (int)id;
    return id < 0 ? 0 : (int32_t)id;
}

/* ---- strings and attributes ------------------------------------------------------------------ */

static int32_t text_index(struct builder *b, const char *text)
{
    return noted(b, clp_seqs_intern(&b->strings, text, (uint32_t)strlen(text) + 1));
}

static int32_t model_text(struct builder *b, uint32_t string)
{
    return text_index(b, clp_model_text(b->p, string));
}

static int32_t text_attribute(struct builder *b, const char *key, const char *value)
{
    struct attribute a = {.key = (uint32_t)text_index(b, key),
                          .str = (uint32_t)text_index(b, value) + 1};
    return noted(b, clp_rows_intern(&b->attributes, &a));
}

static int32_t number_attribute(struct builder *b, const char *key, int64_t value, const char *unit)
{
    struct attribute a = {.key = (uint32_t)text_index(b, key),
                          .unit = unit ? (uint32_t)text_index(b, unit) : 0,
                          .num = value};
    return noted(b, clp_rows_intern(&b->attributes, &a));
}

/* ---- tables ---------------------------------------------------------------------------------- */

static int32_t mapping_index(struct builder *b, uint32_t id)
{
    ClpOtlp__ProfilesDictionary *d = &b->dictionary;
    const struct clp_model_mapping *m = clp_model_mapping(b->p, id);
    if (id == CLP_PROFILE_NO_MAPPING || b->mappings[id])
        return (int32_t)b->mappings[id];
    ClpOtlp__Mapping *out = take(b, sizeof(*out));
    if (!out)
        return 0;
    clp_otlp__mapping__init(out);
    out->memory_start = m->start;
    out->memory_limit = m->limit;
    out->file_offset = m->file_offset;
    out->filename_strindex = model_text(b, m->filename);
    if (m->build_id && (out->attribute_indices = take(b, sizeof(int32_t)))) {
        out->attribute_indices[0] =
            text_attribute(b, "process.executable.build_id.gnu", clp_model_text(b->p, m->build_id));
        out->n_attribute_indices = 1;
    }
    b->mappings[id] = (uint32_t)d->n_mapping_table;
    d->mapping_table[d->n_mapping_table++] = out;
    return (int32_t)b->mappings[id];
}

static int32_t function_index(struct builder *b, uint32_t id)
{
    ClpOtlp__ProfilesDictionary *d = &b->dictionary;
    const struct clp_model_function *f = clp_model_function(b->p, id);
    if (b->functions[id])
        return (int32_t)b->functions[id];
    ClpOtlp__Function *out = take(b, sizeof(*out));
    if (!out)
        return 0;
    clp_otlp__function__init(out);
    out->name_strindex = model_text(b, f->name);
    out->system_name_strindex = model_text(b, f->system_name);
    out->filename_strindex = model_text(b, f->filename);
    out->start_line = f->start_line;
    b->functions[id] = (uint32_t)d->n_function_table;
    d->function_table[d->n_function_table++] = out;
    return (int32_t)b->functions[id];
}

/* Compiled managed code has no address outside its process; what stands in brackets is neither. */
static const char *frame_type(const struct builder *b, const struct clp_model_location *l,
                              const struct clp_profile_line *lines, uint32_t count)
{
    if (count > 0 &&
        *clp_model_text(b->p, clp_model_function(b->p, lines[0].function)->name) == '[')
        return NULL;
    return l->address ? "native" : "dotnet";
}

static void fill_lines(struct builder *b, ClpOtlp__Location *out,
                       const struct clp_profile_line *lines, uint32_t count)
{
    ClpOtlp__Line *line = take(b, count * sizeof(*line));
    out->lines = take(b, count * sizeof(*out->lines));
    if (!line || !out->lines)
        return;
    for (uint32_t i = 0; i < count; i++) {
        clp_otlp__line__init(&line[i]);
        line[i].function_index = function_index(b, lines[i].function);
        line[i].line = lines[i].line;
        out->lines[i] = &line[i];
    }
    out->n_lines = count;
}

static int32_t location_index(struct builder *b, uint32_t id)
{
    uint32_t count;
    ClpOtlp__ProfilesDictionary *d = &b->dictionary;
    if (b->locations[id])
        return (int32_t)b->locations[id];
    const struct clp_model_location *l = clp_model_location(b->p, id);
    const struct clp_profile_line *lines = clp_model_lines(b->p, l, &count);
    const char *type = frame_type(b, l, lines, count);
    ClpOtlp__Location *out = take(b, sizeof(*out));
    if (!out)
        return 0;
    clp_otlp__location__init(out);
    out->mapping_index = mapping_index(b, l->mapping);
    out->address = l->address;
    fill_lines(b, out, lines, count);
    if (type && (out->attribute_indices = take(b, sizeof(int32_t)))) {
        out->attribute_indices[0] = text_attribute(b, "profile.frame.type", type);
        out->n_attribute_indices = 1;
    }
    b->locations[id] = (uint32_t)d->n_location_table;
    d->location_table[d->n_location_table++] = out;
    return (int32_t)b->locations[id];
}

static int32_t stack_index(struct builder *b, uint32_t id)
{
    uint32_t frames;
    ClpOtlp__ProfilesDictionary *d = &b->dictionary;
    if (b->stacks[id])
        return (int32_t)b->stacks[id];
    const uint32_t *stack = clp_model_stack(b->p, id, &frames);
    ClpOtlp__Stack *out = take(b, sizeof(*out));
    int32_t *indices = take(b, frames * sizeof(*indices));
    if (!out || !indices)
        return 0;
    clp_otlp__stack__init(out);
    for (uint32_t i = 0; i < frames; i++)
        indices[i] = location_index(b, stack[i]);
    out->n_location_indices = frames;
    out->location_indices = indices;
    b->stacks[id] = (uint32_t)d->n_stack_table;
    d->stack_table[d->n_stack_table++] = out;
    return (int32_t)b->stacks[id];
}

/* ---- samples --------------------------------------------------------------------------------- */

/* OpenTelemetry's own name where it has one. */
static const char *attribute_key(const char *label)
{
    static const char *const names[][2] = {
        {"thread_id", "thread.id"},           {"thread_name", "thread.name"},
        {"exception_type", "exception.type"}, {"exception_message", "exception.message"},
        {"endpoint", "http.route"},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(names); i++)
        if (strcmp(names[i][0], label) == 0)
            return names[i][1];
    return label;
}

static bool from_hex(const char *text, uint8_t *ret, size_t bytes)
{
    if (strlen(text) != bytes * 2 || strspn(text, "0123456789abcdefABCDEF") != bytes * 2)
        return false;
    for (size_t i = 0; i < bytes; i++) {
        char pair[3] = {text[i * 2], text[i * 2 + 1], '\0'};
        ret[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return true;
}

/* A link needs both ids; *ret_link stays 0 without them, and they are attributes then. */
static void find_link(struct builder *b, const struct clp_model_label *labels, uint32_t count,
                      int32_t *ret_link)
{
    struct link link = {{0}, {0}};
    bool trace = false, span = false;
    for (uint32_t i = 0; i < count; i++) {
        const char *key = clp_model_text(b->p, labels[i].key);
        const char *value = clp_model_text(b->p, labels[i].str);
        if (strcmp(key, "trace_id") == 0)
            trace = from_hex(value, link.trace_id, sizeof(link.trace_id));
        else if (strcmp(key, "span_id") == 0)
            span = from_hex(value, link.span_id, sizeof(link.span_id));
    }
    *ret_link = trace && span ? noted(b, clp_rows_intern(&b->links, &link)) : 0;
}

static void fill_attributes(struct builder *b, ClpOtlp__Sample *out, uint32_t label_set)
{
    uint32_t count;
    const struct clp_model_label *labels = clp_model_labels(b->p, label_set, &count);
    if (count == 0)
        return;
    find_link(b, labels, count, &out->link_index);
    int32_t *indices = take(b, count * sizeof(*indices));
    for (uint32_t i = 0; indices && i < count; i++) {
        const char *key = clp_model_text(b->p, labels[i].key);
        if (out->link_index && (strcmp(key, "trace_id") == 0 || strcmp(key, "span_id") == 0))
            continue;
        const char *name = attribute_key(key);
        indices[out->n_attribute_indices++] =
            labels[i].str
                ? text_attribute(b, name, clp_model_text(b->p, labels[i].str))
                : number_attribute(b, name, labels[i].num,
                                   labels[i].unit ? clp_model_text(b->p, labels[i].unit) : NULL);
    }
    out->attribute_indices = indices;
}

static ClpOtlp__Sample *make_sample(struct builder *b, uint32_t at)
{
    const struct clp_model_sample *s = clp_model_sample(b->p, at);
    ClpOtlp__Sample *out = take(b, sizeof(*out));
    int64_t *value = take(b, sizeof(*value));
    if (!out || !value)
        return NULL;
    clp_otlp__sample__init(out);
    out->stack_index = stack_index(b, s->stack);
    fill_attributes(b, out, s->labels);
    *value = b->rounded[at];
    out->n_values = 1;
    out->values = value;
    return out;
}

static ClpOtlp__ValueType *make_type(struct builder *b, const char *type, const char *unit)
{
    ClpOtlp__ValueType *out = take(b, sizeof(*out));
    if (!out)
        return NULL;
    clp_otlp__value_type__init(out);
    out->type_strindex = text_index(b, type);
    out->unit_strindex = text_index(b, unit);
    return out;
}

static void fill_profile(struct builder *b, ClpOtlp__Profile *out, uint32_t value)
{
    const struct clp_profile *p = b->p;
    const char *type = clp_model_text(p, p->value_types[value].type);
    const struct clp_series *s = clp_series_of(type);
    bool cpu = strcmp(type, "cpu") == 0;
    out->sample_type = make_type(b, type, clp_model_text(p, p->value_types[value].unit));
    if (s)
        out->period_type = make_type(b, s->period_type.type, s->period_type.unit);
    out->period = cpu ? p->period : 1;
    out->time_unix_nano = p->start_unix_ns;
    out->duration_nano = p->duration_ns;
    out->profile_id = (ProtobufCBinaryData){.data = take(b, 16), .len = 16};
    if (out->profile_id.data)
        clp_part_id(&b->chunk->header, type, out->profile_id.data);
    out->attribute_indices = take(b, PROFILE_ATTRIBUTES * sizeof(int32_t));
    if (out->attribute_indices) {
        out->attribute_indices[0] =
            number_attribute(b, "clrpulse.profile_seq", (int64_t)b->chunk->header.seq, NULL);
        out->n_attribute_indices = PROFILE_ATTRIBUTES;
    }
}

/* The profile of one sample type, or NULL when it has no sample. */
static ClpOtlp__Profile *make_profile(struct builder *b, uint32_t value)
{
    uint32_t count = 0;
    int r = clp_model_round(b->p, value, b->rounded);
    if (r < 0 && b->error == 0)
        b->error = r;
    for (uint32_t i = 0; i < b->p->samples.len && b->error == 0; i++)
        count += b->rounded[i] != 0;
    ClpOtlp__Profile *out = count ? take(b, sizeof(*out)) : NULL;
    ClpOtlp__Sample **samples = count ? take(b, count * sizeof(*samples)) : NULL;
    if (!out || !samples)
        return NULL;
    clp_otlp__profile__init(out);
    fill_profile(b, out, value);
    out->samples = samples;
    for (uint32_t i = 0; i < b->p->samples.len && b->error == 0; i++)
        if (b->rounded[i] != 0)
            samples[out->n_samples++] = make_sample(b, i);
    return out;
}

/* ---- dictionary ------------------------------------------------------------------------------ */

static void list_strings(struct builder *b)
{
    ClpOtlp__ProfilesDictionary *d = &b->dictionary;
    d->string_table = take(b, b->strings.len * sizeof(*d->string_table));
    for (uint32_t i = 0, len; d->string_table && i < b->strings.len; i++)
        d->string_table[d->n_string_table++] =
            (char *)(uintptr_t)clp_seqs_get(&b->strings, i, &len);
}

static void list_attributes(struct builder *b)
{
    ClpOtlp__ProfilesDictionary *d = &b->dictionary;
    uint32_t count = b->attributes.len;
    ClpOtlp__KeyValueAndUnit *out = take(b, count * sizeof(*out));
    ClpOtlp__AnyValue *values = take(b, count * sizeof(*values));
    d->attribute_table = take(b, count * sizeof(*d->attribute_table));
    for (uint32_t i = 0; out && values && d->attribute_table && i < count; i++) {
        const struct attribute *a = clp_rows_get(&b->attributes, i);
        uint32_t len;
        clp_otlp__key_value_and_unit__init(&out[i]);
        clp_otlp__any_value__init(&values[i]);
        out[i].key_strindex = (int32_t)a->key;
        out[i].unit_strindex = (int32_t)a->unit;
        if (a->str) {
            values[i].value_case = CLP_OTLP__ANY_VALUE__VALUE_STRING_VALUE;
            values[i].string_value = (char *)(uintptr_t)clp_seqs_get(&b->strings, a->str - 1, &len);
        } else {
            values[i].value_case = CLP_OTLP__ANY_VALUE__VALUE_INT_VALUE;
            values[i].int_value = a->num;
        }
        out[i].value = i ? &values[i] : NULL; /* the first is the zero value */
        d->attribute_table[d->n_attribute_table++] = &out[i];
    }
}

static void list_links(struct builder *b)
{
    ClpOtlp__ProfilesDictionary *d = &b->dictionary;
    uint32_t count = b->links.len;
    ClpOtlp__Link *out = take(b, count * sizeof(*out));
    d->link_table = take(b, count * sizeof(*d->link_table));
    for (uint32_t i = 0; out && d->link_table && i < count; i++) {
        struct link *link = (struct link *)(uintptr_t)clp_rows_get(&b->links, i);
        clp_otlp__link__init(&out[i]);
        out[i].trace_id = (ProtobufCBinaryData){.data = link->trace_id, .len = 16};
        out[i].span_id = (ProtobufCBinaryData){.data = link->span_id, .len = 8};
        d->link_table[d->n_link_table++] = &out[i];
    }
}

#define BEGIN_TABLE(b, table, type, room)                                                          \
    do {                                                                                           \
        ClpOtlp__##type *zero_ = take((b), sizeof(*zero_));                                        \
        (b)->dictionary.table = take((b), ((room) + 1u) * sizeof(zero_));                          \
        if (zero_ && (b)->dictionary.table) {                                                      \
            *zero_ = (ClpOtlp__##type)ZERO_##type;                                                 \
            (b)->dictionary.table[0] = zero_;                                                      \
            (b)->dictionary.n_##table = 1;                                                         \
        }                                                                                          \
    } while (0)
#define ZERO_Mapping CLP_OTLP__MAPPING__INIT
#define ZERO_Location CLP_OTLP__LOCATION__INIT
#define ZERO_Function CLP_OTLP__FUNCTION__INIT
#define ZERO_Stack CLP_OTLP__STACK__INIT

static void begin_tables(struct builder *b)
{
    static const struct attribute no_attribute;
    static const struct link no_link;
    const struct clp_profile *p = b->p;
    (void)text_index(b, "");
    (void)noted(b, clp_rows_intern(&b->attributes, &no_attribute));
    (void)noted(b, clp_rows_intern(&b->links, &no_link));
    BEGIN_TABLE(b, mapping_table, Mapping, p->mappings.len);
    BEGIN_TABLE(b, location_table, Location, p->locations.len);
    BEGIN_TABLE(b, function_table, Function, p->functions.len);
    BEGIN_TABLE(b, stack_table, Stack, p->stacks.len);
    b->mappings = take(b, p->mappings.len * sizeof(uint32_t));
    b->functions = take(b, p->functions.len * sizeof(uint32_t));
    b->locations = take(b, p->locations.len * sizeof(uint32_t));
    b->stacks = take(b, p->stacks.len * sizeof(uint32_t));
    b->rounded = take(b, p->samples.len * sizeof(*b->rounded));
}

/* ---- resource -------------------------------------------------------------------------------- */

struct resource {
    ClpOtlp__Resource message;
    ClpOtlp__KeyValue pairs[RESOURCE_MAX], *at[RESOURCE_MAX];
    ClpOtlp__AnyValue values[RESOURCE_MAX];
    char keys[CLP_UPLOAD_TAGS_MAX][128];
};

static ClpOtlp__AnyValue *add_pair(struct resource *r, const char *key)
{
    size_t i = r->message.n_attributes;
    for (size_t k = 0; k < i; k++)
        if (strcmp(r->pairs[k].key, key) == 0)
            return NULL;
    if (i == RESOURCE_MAX)
        return NULL;
    clp_otlp__key_value__init(&r->pairs[i]);
    clp_otlp__any_value__init(&r->values[i]);
    r->pairs[i].key = (char *)(uintptr_t)key;
    r->pairs[i].value = &r->values[i];
    r->at[i] = &r->pairs[i];
    r->message.n_attributes++;
    return &r->values[i];
}

static void add_text(struct resource *r, const char *key, const char *value)
{
    ClpOtlp__AnyValue *v = *value ? add_pair(r, key) : NULL;
    if (v) {
        v->value_case = CLP_OTLP__ANY_VALUE__VALUE_STRING_VALUE;
        v->string_value = (char *)(uintptr_t)value;
    }
}

static void fill_resource(struct resource *r, const struct clp_upload_header *h)
{
    clp_otlp__resource__init(&r->message);
    r->message.attributes = r->at;
    add_text(r, "service.name", *h->service ? h->service : "unknown_service");
    add_text(r, "service.version", h->version);
    add_text(r, "service.instance.id", h->runtime_id);
    add_text(r, "deployment.environment.name", h->env);
    add_text(r, "host.name", h->host);
    add_text(r, "container.id", h->container_id);
    add_text(r, "process.runtime.name", ".NET");
    add_text(r, "process.runtime.version", h->runtime_version);
    ClpOtlp__AnyValue *pid = add_pair(r, "process.pid");
    pid->value_case = CLP_OTLP__ANY_VALUE__VALUE_INT_VALUE;
    pid->int_value = h->ns_pid > 0 ? h->ns_pid : h->pid;
    for (size_t i = 0; i < h->tag_count; i++) {
        const char *colon = strchr(h->tags[i], ':');
        if (!colon || colon == h->tags[i])
            continue;
        struct clp_text key = clp_text_in(r->keys[i], sizeof(r->keys[i]));
        clp_text_addn(&key, h->tags[i], (size_t)(colon - h->tags[i]));
        add_text(r, r->keys[i], colon + 1);
    }
}

/* ---- request --------------------------------------------------------------------------------- */

/* protobuf-c's buffer that goes straight into the compressor. */
struct sink {
    ProtobufCBuffer base;
    struct clp_gzip *gzip;
    int error;
};

static void sink_append(ProtobufCBuffer *base, size_t len, const uint8_t *data)
{
    struct sink *s = (struct sink *)base;
    if (s->error == 0)
        s->error = clp_gzip_add(s->gzip, data, len);
}

static int pack(const ClpOtlp__ExportRequest *m, struct clp_request *q)
{
    CLP_CLEANUP(clp_strbuf_done) struct clp_strbuf out;
    CLP_CLEANUP(clp_gzip_freep) struct clp_gzip *gzip = NULL;
    clp_strbuf_init(&out, CLP_ENCODE_MAX_BYTES);
    int r = clp_gzip_new(&out, &gzip);
    if (r < 0)
        return r;
    struct sink sink = {.base = {.append = sink_append}, .gzip = gzip};
    (void)clp_otlp__export_request__pack_to_buffer(m, &sink.base);
    r = sink.error ? sink.error : clp_gzip_finish(gzip);
    if (r == 0)
        r = clp_strbuf_take(&out, (char **)&q->body, &q->len);
    return r == -ENOBUFS ? -EFBIG : r;
}

static int pack_all(struct builder *b, ClpOtlp__Profile **profiles, size_t count,
                    struct clp_request *q)
{
    struct resource *resource = take(b, sizeof(*resource));
    ClpOtlp__Scope scope = CLP_OTLP__SCOPE__INIT;
    ClpOtlp__ScopeProfiles in_scope = CLP_OTLP__SCOPE_PROFILES__INIT, *scopes[] = {&in_scope};
    ClpOtlp__ResourceProfiles in_resource = CLP_OTLP__RESOURCE_PROFILES__INIT;
    ClpOtlp__ResourceProfiles *resources[] = {&in_resource};
    ClpOtlp__ExportRequest m = CLP_OTLP__EXPORT_REQUEST__INIT;
    list_strings(b);
    list_attributes(b);
    list_links(b);
    if (b->error)
        return b->error;
    fill_resource(resource, &b->chunk->header);
    scope.name = (char *)(uintptr_t) "clrpulse";
    scope.version = (char *)(uintptr_t)CLP_VERSION;
    in_scope.scope = &scope;
    in_scope.n_profiles = count;
    in_scope.profiles = profiles;
    in_resource.resource = &resource->message;
    in_resource.n_scope_profiles = 1;
    in_resource.scope_profiles = scopes;
    m.n_resource_profiles = 1;
    m.resource_profiles = resources;
    m.dictionary = &b->dictionary;
    return pack(&m, q);
}

static int build_body(struct builder *b, struct clp_request *q)
{
    ClpOtlp__Profile *profiles[CLP_PROFILE_VALUES_MAX];
    size_t count = 0;
    clp_otlp__profiles_dictionary__init(&b->dictionary);
    begin_tables(b);
    for (uint32_t i = 0; i < b->p->value_count && b->error == 0; i++)
        if ((profiles[count] = make_profile(b, i)))
            count++;
    if (b->error)
        return b->error;
    return count ? pack_all(b, profiles, count, q) : -ENODATA;
}

static int make_body(const struct clp_chunk *c, const struct clp_profile *p, struct clp_request *q)
{
    struct builder b = {.p = p, .chunk = c};
    clp_arena_init(&b.arena, TREE_MAX_BYTES);
    clp_seqs_init(&b.strings, 1, 200000, 64u << 20);
    clp_rows_init(&b.attributes, sizeof(struct attribute), 200000);
    clp_rows_init(&b.links, sizeof(struct link), 200000);
    int r = build_body(&b, q);
    clp_seqs_done(&b.strings);
    clp_rows_done(&b.attributes);
    clp_rows_done(&b.links);
    clp_arena_done(&b.arena);
    return r;
}

static int otlp_build(const struct clp_intake *in, const struct clp_chunk *c,
                      const struct clp_profile *p, struct clp_requests *ret)
{
    struct clp_reshape_value values[CLP_PROFILE_VALUES_MAX];
    struct clp_reshape how = {
        .values = values, .all_labels = true, .plain_max = in->plain_max, .model = true};
    for (uint32_t i = 0; i < p->value_count; i++)
        values[how.value_count++] =
            (struct clp_reshape_value){.from = clp_model_text(p, p->value_types[i].type)};
    struct clp_reshaped shaped;
    int r = clp_profile_reshape(p, &how, &shaped);
    if (r < 0)
        return r;
    struct clp_request *q = clp_requests_add(ret, "all");
    q->folded = shaped.folded;
    q->plain_len = shaped.encoded.plain_len;
    memcpy(q->note, shaped.note, sizeof(q->note));
    r = make_body(c, shaped.model, q);
    clp_reshaped_done(&shaped);
    if (r == 0)
        r = clp_request_header(q, "Content-Type", "application/x-protobuf");
    if (r == 0)
        r = clp_request_header(q, "Content-Encoding", "gzip");
    if (r == 0 && in->upload.otlp_version)
        r = clp_request_header(q, "OTLP-Profiles-Development-Version", in->upload.otlp_version);
    return r;
}

/* ---- the answer ------------------------------------------------------------------------------ */

/* A partial success is final: the same bytes are rejected again. */
static int judge_success(const struct clp_reply *reply, char *text, size_t cap)
{
    int status = reply->status;
    ClpOtlp__ExportResponse *m =
        clp_otlp__export_response__unpack(NULL, reply->len, (const uint8_t *)reply->body);
    if (m && m->partial_success && m->partial_success->rejected_profiles > 0) {
        (void)snprintf(text, cap, "%lld profiles rejected: %s",
                       (long long)m->partial_success->rejected_profiles,
                       m->partial_success->error_message);
        status = 400;
    }
    if (m)
        clp_otlp__export_response__free_unpacked(m, NULL);
    return status;
}

static int otlp_judge(const struct clp_reply *reply, char *text, size_t cap)
{
    if (reply->status >= 200 && reply->status < 300)
        return judge_success(reply, text, cap);
    ClpOtlp__Status *m = clp_otlp__status__unpack(NULL, reply->len, (const uint8_t *)reply->body);
    if (m && *m->message)
        (void)snprintf(text, cap, "%s", m->message);
    else
        (void)snprintf(text, cap, "%.*s", (int)reply->len, reply->body);
    if (m)
        clp_otlp__status__free_unpacked(m, NULL);
    return reply->status;
}

const struct clp_intake_kind clp_intake_otlp = {
    .name = "otlp",
    .plain_max = PLAIN_MAX_BYTES,
    .path = "/v1development/profiles",
    .build = otlp_build,
    .judge = otlp_judge,
};
