/* The message is never built as a whole: protobuf defines that encodings laid end to end are the
 * encoding of the merged message, so each sample, location and string is packed as a Profile with
 * that one entry and goes straight into the compressor. */
#include "pprof/encode.h"
#include "base/cleanup.h"
#include "base/strbuf.h"
#include "pprof/gzip.h"
#include "pprof/model.h"
#include "pprof/profile.pb-c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STAGE_BYTES 16384u
/* Texts that are not of the model: comments, overridden names. */
#define EXTRA_TEXTS_MAX (CLP_PROFILE_COMMENTS_MAX + 2u)

/* Where packed bytes go. */
struct sink {
    ProtobufCBuffer base; /* first: protobuf-c hands us its address */
    struct clp_strbuf out;
    struct clp_gzip *gzip; /* NULL: plain */
    uint8_t stage[STAGE_BYTES];
    size_t staged;
    size_t plain_len;
    int error;
};

struct encoder {
    const struct clp_profile *p;
    uint8_t values[CLP_PROFILE_VALUES_MAX]; /* which sample types, in which order */
    uint32_t value_count;
    int64_t *rounded;   /* value_count rows of p->samples.len */
    uint32_t *strings;  /* number in the model -> number in the file, 0: not yet */
    uint32_t *mappings; /* likewise; for these three first a mark that it is used */
    uint32_t *functions;
    uint32_t *locations;
    const char **texts; /* the file's string table behind "" */
    uint32_t text_count;
    uint64_t *location_ids;   /* CLP_PROFILE_FRAMES_MAX, for the sample at hand */
    struct clp_strbuf counts; /* comments on what was lost, each with its NUL */
    uint32_t count_count;
    size_t samples;
    struct sink sink;
};

/* ---- the sink ------------------------------------------------------------------------------- */

static void flush_stage(struct sink *s)
{
    if (s->error == 0 && s->gzip)
        s->error = clp_gzip_add(s->gzip, s->stage, s->staged);
    else if (s->error == 0)
        clp_strbuf_add(&s->out, s->stage, s->staged);
    if (s->error == 0)
        s->error = clp_strbuf_error(&s->out);
    s->staged = 0;
}

static void sink_append(ProtobufCBuffer *base, size_t len, const uint8_t *data)
{
    struct sink *s = (struct sink *)base;
    s->plain_len += len;
    while (len > 0) {
        size_t n = CLP_MIN(len, sizeof(s->stage) - s->staged);
        memcpy(s->stage + s->staged, data, n);
        s->staged += n;
        data += n;
        len -= n;
        if (s->staged == sizeof(s->stage))
            flush_stage(s);
    }
}

static int finish_sink(struct sink *s)
{
    flush_stage(s);
    if (s->error == 0 && s->gzip)
        s->error = clp_gzip_finish(s->gzip);
    return s->error == -ENOBUFS ? -EFBIG : s->error;
}

static void emit(struct encoder *e, const Pprof__Profile *piece)
{
    (void)pprof__profile__pack_to_buffer(piece, &e->sink.base);
}

/* ---- strings: numbered when they are first used --------------------------------------------- */

static int64_t extra_text(struct encoder *e, const char *s)
{
    if (*s == '\0')
        return 0;
    e->texts[e->text_count++] = s;
    return e->text_count;
}

static int64_t text(struct encoder *e, uint32_t string)
{
    if (string == 0)
        return 0;
    if (e->strings[string] == 0)
        e->strings[string] = (uint32_t)extra_text(e, clp_model_text(e->p, string));
    return e->strings[string];
}

/* A caller's text, which the model may know already. */
static int64_t foreign_text(struct encoder *e, const char *s)
{
    if (!s)
        return 0;
    int64_t id = clp_seqs_find(&e->p->strings, s, (uint32_t)strlen(s) + 1);
    return id >= 0 ? text(e, (uint32_t)id) : extra_text(e, s);
}

/* ---- what is used --------------------------------------------------------------------------- */

static int64_t rounded(const struct encoder *e, uint32_t kept_value, uint32_t sample)
{
    return e->rounded[(size_t)kept_value * e->p->samples.len + sample];
}

static bool sample_is_kept(const struct encoder *e, uint32_t sample)
{
    for (uint32_t i = 0; i < e->value_count; i++)
        if (rounded(e, i, sample) != 0)
            return true;
    return false;
}

static void mark_stack(struct encoder *e, uint32_t stack)
{
    uint32_t frames, lines;
    const uint32_t *locations = clp_model_stack(e->p, stack, &frames);
    for (uint32_t i = 0; i < frames; i++) {
        if (e->locations[locations[i]])
            continue;
        const struct clp_model_location *l = clp_model_location(e->p, locations[i]);
        const struct clp_profile_line *line = clp_model_lines(e->p, l, &lines);
        e->locations[locations[i]] = 1;
        e->mappings[l->mapping] = 1;
        for (uint32_t k = 0; k < lines; k++)
            e->functions[line[k].function] = 1;
    }
}

/* Marks become ids from 1 without gaps. */
static void number_marks(uint32_t *marks, uint32_t count)
{
    uint32_t next = 1;
    for (uint32_t i = 0; i < count; i++)
        if (marks[i])
            marks[i] = next++;
}

static void choose(struct encoder *e)
{
    for (uint32_t i = 0; i < e->p->samples.len; i++)
        if (sample_is_kept(e, i))
            mark_stack(e, clp_model_sample(e->p, i)->stack);
    /* The first mapping stands for the main binary, used or not. */
    if (e->p->mappings.len > 1)
        e->mappings[1] = 1;
    e->mappings[CLP_PROFILE_NO_MAPPING] = 0;
    number_marks(e->mappings, e->p->mappings.len);
    number_marks(e->functions, e->p->functions.len);
    number_marks(e->locations, e->p->locations.len);
}

/* ---- pieces --------------------------------------------------------------------------------- */

static void emit_sample_types(struct encoder *e)
{
    for (uint32_t i = 0; i < e->value_count; i++) {
        const struct clp_model_value_type *t = &e->p->value_types[e->values[i]];
        Pprof__ValueType type = PPROF__VALUE_TYPE__INIT;
        Pprof__ValueType *types[] = {&type};
        Pprof__Profile piece = PPROF__PROFILE__INIT;
        type.type = text(e, t->type);
        type.unit = text(e, t->unit);
        piece.n_sample_type = 1;
        piece.sample_type = types;
        emit(e, &piece);
    }
}

/* One comment for each count that is not 0, every one with its NUL; how many. */
static uint32_t write_counts(const struct clp_profile *p, struct clp_strbuf *b)
{
    uint32_t count = 0;
#define CLP_PROFILE_COUNT(field, text)                                                             \
    if (p->counts.field) {                                                                         \
        clp_strbuf_printf(b, "profile_%s=%llu count", #field,                                      \
                          (unsigned long long)p->counts.field);                                    \
        clp_strbuf_char(b, '\0');                                                                  \
        count++;                                                                                   \
    }
#include "pprof/counts.def"
#undef CLP_PROFILE_COUNT
    return count;
}

static int64_t default_type(struct encoder *e, const struct clp_encode_options *o)
{
    const struct clp_profile *p = e->p;
    uint32_t value = e->values[e->value_count - 1];
    for (uint32_t i = 0; i < e->value_count; i++)
        if (e->values[i] == p->default_value)
            value = p->default_value;
    if (o->default_sample_type)
        value = (uint32_t)clp_profile_value_index(p, o->default_sample_type);
    return text(e, p->value_types[value].type);
}

static void emit_header(struct encoder *e, const struct clp_encode_options *o)
{
    const struct clp_profile *p = e->p;
    Pprof__ValueType period_type = PPROF__VALUE_TYPE__INIT;
    Pprof__Profile piece = PPROF__PROFILE__INIT;
    bool own = o->period_type.type != NULL;
    period_type.type = own ? foreign_text(e, o->period_type.type) : text(e, p->period_type.type);
    period_type.unit = own ? foreign_text(e, o->period_type.unit) : text(e, p->period_type.unit);
    piece.period_type = &period_type;
    piece.period = own && o->period ? o->period : p->period;
    piece.time_nanos = (int64_t)CLP_MIN(p->start_unix_ns, (uint64_t)INT64_MAX);
    piece.duration_nanos = (int64_t)CLP_MIN(p->duration_ns, (uint64_t)INT64_MAX);
    piece.default_sample_type = default_type(e, o);
    emit(e, &piece);
}

/* What was lost has the last word, and a place even if the caller has used up all of his. */
static void emit_comments(struct encoder *e, const char *counts, uint32_t count)
{
    int64_t comments[CLP_PROFILE_COMMENTS_MAX];
    Pprof__Profile piece = PPROF__PROFILE__INIT;
    piece.comment = comments;
    for (uint32_t i = 0; i < e->p->comment_count && i < CLP_PROFILE_COMMENTS_MAX - count; i++)
        comments[piece.n_comment++] = extra_text(e, e->p->comments[i]);
    for (uint32_t i = 0; i < count; i++, counts += strlen(counts) + 1)
        comments[piece.n_comment++] = extra_text(e, counts);
    emit(e, &piece);
}

static void emit_mappings(struct encoder *e)
{
    for (uint32_t i = 1; i < e->p->mappings.len; i++) {
        const struct clp_model_mapping *m = clp_model_mapping(e->p, i);
        Pprof__Mapping mapping = PPROF__MAPPING__INIT;
        Pprof__Mapping *mappings[] = {&mapping};
        Pprof__Profile piece = PPROF__PROFILE__INIT;
        if (!e->mappings[i])
            continue;
        mapping.id = e->mappings[i];
        mapping.memory_start = m->start;
        mapping.memory_limit = m->limit;
        mapping.file_offset = m->file_offset;
        mapping.filename = text(e, m->filename);
        mapping.build_id = text(e, m->build_id);
        mapping.has_functions = (m->flags & CLP_MODEL_HAS_FUNCTIONS) != 0;
        mapping.has_filenames = (m->flags & CLP_MODEL_HAS_FILENAMES) != 0;
        mapping.has_line_numbers = (m->flags & CLP_MODEL_HAS_LINE_NUMBERS) != 0;
        mapping.has_inline_frames = (m->flags & CLP_MODEL_HAS_INLINE_FRAMES) != 0;
        piece.n_mapping = 1;
        piece.mapping = mappings;
        emit(e, &piece);
    }
}

static void emit_functions(struct encoder *e)
{
    for (uint32_t i = 0; i < e->p->functions.len; i++) {
        const struct clp_model_function *f = clp_model_function(e->p, i);
        Pprof__Function function = PPROF__FUNCTION__INIT;
        Pprof__Function *functions[] = {&function};
        Pprof__Profile piece = PPROF__PROFILE__INIT;
        if (!e->functions[i])
            continue;
        function.id = e->functions[i];
        function.name = text(e, f->name);
        function.system_name = text(e, f->system_name);
        function.filename = text(e, f->filename);
        function.start_line = f->start_line;
        piece.n_function = 1;
        piece.function = functions;
        emit(e, &piece);
    }
}

static void emit_location(struct encoder *e, uint32_t at)
{
    const struct clp_model_location *l = clp_model_location(e->p, at);
    Pprof__Location location = PPROF__LOCATION__INIT;
    Pprof__Location *locations[] = {&location};
    Pprof__Profile piece = PPROF__PROFILE__INIT;
    Pprof__Line lines[CLP_PROFILE_LINES_MAX];
    Pprof__Line *line_at[CLP_PROFILE_LINES_MAX];
    uint32_t count;
    const struct clp_profile_line *line = clp_model_lines(e->p, l, &count);
    for (uint32_t i = 0; i < count; i++) {
        pprof__line__init(&lines[i]);
        lines[i].function_id = e->functions[line[i].function];
        lines[i].line = line[i].line;
        line_at[i] = &lines[i];
    }
    location.id = e->locations[at];
    location.mapping_id = e->mappings[l->mapping];
    location.address = l->address;
    location.n_line = count;
    location.line = line_at;
    piece.n_location = 1;
    piece.location = locations;
    emit(e, &piece);
}

static size_t fill_labels(struct encoder *e, uint32_t set, Pprof__Label *labels, Pprof__Label **at)
{
    uint32_t count;
    const struct clp_model_label *l = clp_model_labels(e->p, set, &count);
    for (uint32_t i = 0; i < count; i++) {
        pprof__label__init(&labels[i]);
        labels[i].key = text(e, l[i].key);
        labels[i].str = text(e, l[i].str);
        labels[i].num = l[i].num;
        labels[i].num_unit = text(e, l[i].unit);
        at[i] = &labels[i];
    }
    return count;
}

static void emit_sample(struct encoder *e, uint32_t at)
{
    const struct clp_model_sample *s = clp_model_sample(e->p, at);
    Pprof__Sample sample = PPROF__SAMPLE__INIT;
    Pprof__Sample *samples[] = {&sample};
    Pprof__Profile piece = PPROF__PROFILE__INIT;
    Pprof__Label labels[CLP_PROFILE_LABELS_MAX];
    Pprof__Label *label_at[CLP_PROFILE_LABELS_MAX];
    int64_t values[CLP_PROFILE_VALUES_MAX];
    uint32_t frames;
    const uint32_t *stack = clp_model_stack(e->p, s->stack, &frames);
    for (uint32_t i = 0; i < frames; i++)
        e->location_ids[i] = e->locations[stack[i]];
    for (uint32_t i = 0; i < e->value_count; i++)
        values[i] = rounded(e, i, at);
    sample.n_location_id = frames;
    sample.location_id = e->location_ids;
    sample.n_value = e->value_count;
    sample.value = values;
    sample.n_label = fill_labels(e, s->labels, labels, label_at);
    sample.label = label_at;
    piece.n_sample = 1;
    piece.sample = samples;
    emit(e, &piece);
    e->samples++;
}

static void emit_strings(struct encoder *e)
{
    char *one[1] = {(char *)(uintptr_t) ""};
    Pprof__Profile piece = PPROF__PROFILE__INIT;
    piece.n_string_table = 1;
    piece.string_table = one;
    emit(e, &piece);
    for (uint32_t i = 0; i < e->text_count; i++) {
        one[0] = (char *)(uintptr_t)e->texts[i]; /* protobuf-c only reads it */
        emit(e, &piece);
    }
}

static void emit_all(struct encoder *e, const struct clp_encode_options *o)
{
    emit_sample_types(e);
    emit_header(e, o);
    emit_comments(e, clp_strbuf_text(&e->counts), e->count_count);
    emit_mappings(e);
    emit_functions(e);
    for (uint32_t i = 0; i < e->p->locations.len; i++)
        if (e->locations[i])
            emit_location(e, i);
    for (uint32_t i = 0; i < e->p->samples.len; i++)
        if (sample_is_kept(e, i))
            emit_sample(e, i);
    emit_strings(e);
}

/* ---- set-up --------------------------------------------------------------------------------- */

static int choose_values(struct encoder *e, const struct clp_encode_options *o)
{
    e->value_count = o->value_count ? (uint32_t)o->value_count : e->p->value_count;
    if (o->value_count > CLP_PROFILE_VALUES_MAX)
        return -EINVAL;
    for (uint32_t i = 0; i < e->value_count; i++) {
        e->values[i] = o->value_count ? o->values[i] : (uint8_t)i;
        if (e->values[i] >= e->p->value_count)
            return -EINVAL;
    }
    if (!o->default_sample_type)
        return 0;
    int wanted = clp_profile_value_index(e->p, o->default_sample_type);
    for (uint32_t i = 0; i < e->value_count; i++)
        if (e->values[i] == wanted)
            return 0;
    return -EINVAL;
}

static int allocate(struct encoder *e, bool plain)
{
    const struct clp_profile *p = e->p;
    e->rounded = calloc((size_t)p->samples.len * e->value_count, sizeof(*e->rounded));
    e->strings = calloc(p->strings.len, sizeof(*e->strings));
    e->mappings = calloc(p->mappings.len, sizeof(*e->mappings));
    e->functions = calloc(p->functions.len, sizeof(*e->functions));
    e->locations = calloc(p->locations.len, sizeof(*e->locations));
    e->texts = calloc(p->strings.len + EXTRA_TEXTS_MAX, sizeof(*e->texts));
    e->location_ids = calloc(CLP_PROFILE_FRAMES_MAX, sizeof(*e->location_ids));
    if (!e->rounded || !e->strings || !e->mappings || !e->functions || !e->locations || !e->texts ||
        !e->location_ids)
        return -ENOMEM;
    clp_strbuf_init(&e->counts, CLP_PROFILE_STRING_MAX_BYTES);
    e->count_count = write_counts(p, &e->counts);
    if (clp_strbuf_error(&e->counts) < 0)
        return -ENOMEM;
    e->sink.base.append = sink_append;
    clp_strbuf_init(&e->sink.out, CLP_ENCODE_MAX_BYTES);
    return plain ? 0 : clp_gzip_new(&e->sink.out, &e->sink.gzip);
}

static int round_values(struct encoder *e)
{
    int r = 0;
    for (uint32_t i = 0; i < e->value_count && r == 0; i++)
        r = clp_model_round(e->p, e->values[i], e->rounded + (size_t)i * e->p->samples.len);
    return r;
}

static void free_encoder(struct encoder **at)
{
    struct encoder *e = *at;
    if (!e)
        return;
    free(e->rounded);
    free(e->strings);
    free(e->mappings);
    free(e->functions);
    free(e->locations);
    free(e->texts);
    free(e->location_ids);
    clp_gzip_free(e->sink.gzip);
    clp_strbuf_done(&e->counts);
    clp_strbuf_done(&e->sink.out);
    free(e);
}

static int hand_over(struct encoder *e, struct clp_encoded *ret)
{
    char *data;
    size_t len;
    int r = clp_strbuf_take(&e->sink.out, &data, &len);
    if (r < 0)
        return r;
    *ret = (struct clp_encoded){
        .data = (uint8_t *)data, .len = len, .plain_len = e->sink.plain_len, .samples = e->samples};
    return 0;
}

int clp_profile_encode(const struct clp_profile *p, const struct clp_encode_options *o,
                       struct clp_encoded *ret)
{
    static const struct clp_encode_options everything;
    CLP_CLEANUP(free_encoder) struct encoder *e = calloc(1, sizeof(*e));
    o = o ? o : &everything;
    if (!e)
        return -ENOMEM;
    e->p = p;
    int r = choose_values(e, o);
    if (r == 0)
        r = allocate(e, o->plain);
    if (r == 0)
        r = round_values(e);
    if (r < 0)
        return r;
    choose(e);
    emit_all(e, o);
    r = finish_sink(&e->sink);
    return r < 0 ? r : hand_over(e, ret);
}

void clp_encoded_done(struct clp_encoded *e)
{
    free(e->data);
    *e = (struct clp_encoded){0};
}
