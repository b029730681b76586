#include "agent/profile_build.h"

#include "agent/definitions.h"
#include "agent/event_labels.h"
#include "agent/numbers.h"
#include "agent/types.h"
#include "agent/waits.h"
#include "base/cleanup.h"
#include "base/core/text.h"
#include "wire/tables.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FRAME_CACHE_MAX (1u << 17)

struct clp_build {
    struct clp_build_config config;
    char *main_binary;
    struct clp_definitions defs;
    struct clp_span_labels spans;
    uint64_t window; /* from 1 */
    uint64_t samples;
    unsigned share;                      /* of the ceilings, 1 part in this many */
    int value_at[CLP_SAMPLE_KIND_COUNT]; /* first value of a kind's samples; -1: not asked for */

    struct clp_profile *profile;
    struct clp_map frames;                /* native frame -> location of this window */
    struct clp_map functions;             /* struct native_key -> location of this window */
    uint32_t specials[CLP_SPECIAL_COUNT]; /* location + 1 of this window */
    uint32_t locations[CLP_WIRE_FRAMES_MAX];

    uint64_t counters[CLP_CTR_COUNT];                    /* at the end of the window before */
    uint64_t counted[CLP_CTR_COUNT];                     /* in it */
    struct clp_type_counts exceptions, ended_exceptions; /* of this window and the one before */
    uint64_t idle_ns;     /* waits of idle threads that were left out */
    uint64_t unknown_ids; /* frames and threads that nothing defines */
    uint64_t windows_lost;
};

struct native_key {
    uint64_t start;
    uint32_t image_id;
    uint32_t source;
};

/* ---- mappings ------------------------------------------------------------------------------ */

static void hex(const uint8_t *bytes, size_t n, char *ret)
{
    for (size_t i = 0; i < n; i++)
        snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
}

static uint32_t make_mapping(struct clp_build *b, const struct clp_def_image *image)
{
    char build_id[2 * CLP_WIRE_BUILD_ID_MAX + 1] = "";
    if (!*image->path)
        return CLP_PROFILE_NO_MAPPING;
    hex(image->build_id, image->build_id_len, build_id);
    struct clp_profile_mapping m = {
        .start = image->start,
        .limit = image->end,
        .file_offset = image->file_offset,
        .filename = image->path,
        .build_id = *build_id ? build_id : NULL,
        .has_functions = true, /* nothing is left for a viewer to look up */
    };
    return clp_profile_mapping(b->profile, &m);
}

static uint32_t mapping_of(struct clp_build *b, struct clp_def_image *image)
{
    if (!image)
        return CLP_PROFILE_NO_MAPPING;
    if (image->window != b->window) {
        image->mapping = make_mapping(b, image);
        image->window = b->window;
    }
    return image->mapping;
}

/* pprof takes the first mapping for the program itself. */
static void map_main_binary(struct clp_build *b)
{
    struct clp_map_item i;
    if (!b->main_binary)
        return;
    for (uint32_t at = clp_map_begin(&b->defs.images); clp_map_next(&b->defs.images, &at, &i);) {
        struct clp_def_image *image = i.value->ptr;
        if (strcmp(image->path, b->main_binary) == 0) {
            (void)mapping_of(b, image);
            return;
        }
    }
    struct clp_profile_mapping m = {.filename = b->main_binary, .has_functions = true};
    (void)clp_profile_mapping(b->profile, &m);
}

/* ---- frames -------------------------------------------------------------------------------- */

static uint32_t make_location(struct clp_build *b, struct clp_def_image *image, uint64_t address,
                              const struct clp_profile_function *f)
{
    struct clp_profile_line line = {.function = clp_profile_function(b->profile, f)};
    struct clp_profile_location l = {
        .mapping = mapping_of(b, image), .address = address, .lines = &line, .line_count = 1};
    return clp_profile_location(b->profile, &l);
}

static uint32_t special_location(struct clp_build *b, uint32_t special)
{
    if (special >= CLP_SPECIAL_COUNT)
        special = CLP_SPECIAL_UNKNOWN;
    if (!b->specials[special])
        b->specials[special] = clp_profile_frame(b->profile, clp_special_text(special)) + 1;
    return b->specials[special] - 1;
}

/* An id that was defined may have had no room, or may have made room. */
static uint32_t unknown_location(struct clp_build *b)
{
    if (b->defs.incomplete)
        return CLP_PROFILE_OTHER_LOCATION;
    b->unknown_ids++;
    return special_location(b, CLP_SPECIAL_UNKNOWN);
}

static uint32_t managed_location(struct clp_build *b, uint32_t body_id)
{
    struct clp_def_method *m = clp_definitions_method(&b->defs, body_id);
    if (!m)
        return unknown_location(b);
    if (m->window != b->window) {
        char name[CLP_NAME_MAX], system_name[CLP_NAME_MAX];
        struct clp_managed_raw raw = clp_def_method_raw(m);
        clp_managed_name(&raw, name, sizeof(name));
        clp_managed_system_name(&raw, system_name, sizeof(system_name));
        struct clp_def_image *image = clp_definitions_image(&b->defs, m->image_id);
        struct clp_profile_function f = {.name = name, .system_name = system_name};
        struct clp_pdb_place place;
        /* Where the method begins in its source; the line of a sample is not known. */
        if (image && image->pdb && clp_pdb_method_start(image->pdb, m->token, &place) == 0) {
            f.filename = place.document;
            f.start_line = place.line;
        }
        m->location = make_location(b, image, 0, &f);
        m->window = b->window;
    }
    return m->location;
}

/* An image that is no ELF file, or that could not be opened for want of memory. */
static uint32_t module_location(struct clp_build *b, struct clp_def_image *image)
{
    char name[CLP_NAME_MAX];
    const char *slash = strrchr(image->path, '/');
    snprintf(name, sizeof(name), "%.900s![unknown]", slash ? slash + 1 : image->path);
    return make_location(b, image, image->start, &(struct clp_profile_function){.name = name});
}

static uint32_t named_location(struct clp_build *b, struct clp_def_image *image,
                               const struct clp_symbol *symbol)
{
    char name[CLP_NAME_MAX], system_name[CLP_NAME_MAX];
    clp_symbols_name(image->symbols, symbol, name, sizeof(name), system_name, sizeof(system_name));
    uint64_t address =
        symbol->source == CLP_SYMBOL_NONE ? image->start : image->bias + symbol->start;
    return make_location(b, image, address,
                         &(struct clp_profile_function){.name = name, .system_name = system_name});
}

static uint32_t function_location(struct clp_build *b, uint32_t image_id, uint64_t address)
{
    struct clp_def_image *image = clp_definitions_image(&b->defs, image_id);
    struct clp_symbol symbol;
    if (!image)
        return unknown_location(b);
    if (!image->symbols)
        return module_location(b, image);
    clp_symbols_find(image->symbols, address, &symbol);
    struct native_key key = {.start = symbol.start, .image_id = image_id, .source = symbol.source};
    const union clp_map_value *known = clp_map_get(&b->functions, &key, sizeof(key));
    if (known)
        return (uint32_t)known->u64;
    union clp_map_value made = {.u64 = named_location(b, image, &symbol)};
    (void)!clp_map_put(&b->functions, &key, sizeof(key), made); /* only a cache */
    return (uint32_t)made.u64;
}

static uint32_t native_location(struct clp_build *b, uint64_t frame)
{
    const union clp_map_value *known = clp_map_get_u64(&b->frames, frame);
    if (known)
        return (uint32_t)known->u64;
    union clp_map_value made = {
        .u64 = function_location(b, clp_frame_id(frame), clp_frame_offset(frame))};
    (void)!clp_map_put_u64(&b->frames, frame, made); /* only a cache */
    return (uint32_t)made.u64;
}

/* A thread whose stacks are not sampled, by its name. */
static uint32_t native_thread_location(struct clp_build *b, const struct clp_def_thread *t)
{
    char name[CLP_NAME_MAX];
    if (!t || !*t->name)
        return special_location(b, CLP_SPECIAL_NATIVE_THREAD);
    snprintf(name, sizeof(name), "[native %.900s]", t->name);
    return clp_profile_frame(b->profile, name);
}

static uint32_t location_of(struct clp_build *b, const struct clp_def_thread *t, uint64_t frame)
{
    switch (clp_frame_kind(frame)) {
    case CLP_FRAME_MANAGED:
        return managed_location(b, clp_frame_id(frame));
    case CLP_FRAME_NATIVE:
        return native_location(b, frame);
    case CLP_FRAME_SPECIAL:
        if (clp_frame_id(frame) == CLP_SPECIAL_NATIVE_THREAD)
            return native_thread_location(b, t);
        return special_location(b, clp_frame_id(frame));
    default:
        return special_location(b, CLP_SPECIAL_UNKNOWN);
    }
}

static uint32_t stack_of(struct clp_build *b, const struct clp_def_thread *t,
                         const uint64_t *frames, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        b->locations[i] = location_of(b, t, frames[i]);
    return clp_profile_stack(b->profile, b->locations, count);
}

/* ---- samples ------------------------------------------------------------------------------- */

/* Where the id of a thread's label set is remembered, or NULL. */
static uint32_t *remembered(struct clp_def_thread *t, enum clp_wait wait,
                            const struct clp_def_span *span)
{
    if (span->span_id == 0)
        return &t->labels[wait];
    return memcmp(span, &t->span, sizeof(*span)) == 0 ? &t->span_labels[wait] : NULL;
}

#define THREAD_LABELS_MAX 2u
static size_t thread_labels(const struct clp_def_thread *t, struct clp_profile_label *ret)
{
    size_t n = 0;
    if (!t || t->kind == CLP_THREAD_PROCESS)
        return 0;
    ret[n++] = (struct clp_profile_label){.key = "thread_id", .num = t->tid};
    if (*t->name)
        ret[n++] = (struct clp_profile_label){.key = "thread_name", .str = t->name};
    return n;
}

static uint32_t labels_of(struct clp_build *b, struct clp_def_thread *t, enum clp_wait wait,
                          const struct clp_def_span *span)
{
    struct clp_profile_label labels[THREAD_LABELS_MAX + 1 + CLP_SPAN_LABELS_MAX];
    struct clp_span_texts texts;
    if (!t)
        return CLP_PROFILE_NO_LABELS;
    uint32_t *known = remembered(t, wait, span);
    if (known && *known)
        return *known - 1;
    size_t n = thread_labels(t, labels);
    if (wait)
        labels[n++] = (struct clp_profile_label){.key = "wait", .str = clp_wait_text(wait)};
    n += clp_span_labels_of(&b->spans, span, &texts, labels + n);
    uint32_t id = clp_profile_labels(b->profile, labels, n);
    if (known)
        *known = id + 1;
    return id;
}

/* Ids that a thread remembers belong to one window. */
static void renew_thread(const struct clp_build *b, struct clp_def_thread *t)
{
    if (t->window == b->window)
        return;
    t->window = b->window;
    memset(t->labels, 0, sizeof(t->labels));
    memset(t->span_labels, 0, sizeof(t->span_labels));
    t->cpu.stack = t->wall.stack = 0;
}

static bool has_stack(const struct clp_def_last *l)
{
    return l->stack != 0 || l->frame_count != 0;
}

/* The rest of a thread's clock, without a stack of its own: it goes where the last one went. */
static uint32_t last_stack(struct clp_build *b, const struct clp_def_thread *t,
                           struct clp_def_last *l)
{
    if (l->stack == 0)
        l->stack = stack_of(b, t, l->frames, l->frame_count) + 1;
    return l->stack - 1;
}

static struct clp_def_span span_of(const struct clp_def_thread *t, uint16_t flags)
{
    return t && (flags & CLP_SAMPLE_IN_SPAN) ? t->span : (struct clp_def_span){0};
}

static uint32_t special_stack(struct clp_build *b, uint32_t special)
{
    uint32_t only = special_location(b, special);
    return clp_profile_stack(b->profile, &only, 1);
}

/* Where a sample goes. */
struct place {
    uint32_t stack;
    enum clp_wait wait;
    struct clp_def_span span;
};

static struct place place_without_frames(struct clp_build *b, struct clp_def_thread *t,
                                         const struct clp_rec_sample *s)
{
    bool cpu = s->kind == CLP_SAMPLE_CPU;
    bool cpu_wait = !cpu && (s->flags & CLP_SAMPLE_CPU_WAIT);
    struct clp_def_last *l = !t                                        ? NULL
                             : cpu || (cpu_wait && has_stack(&t->cpu)) ? &t->cpu
                                                                       : &t->wall;
    struct place p = {.stack =
                          special_stack(b, cpu ? CLP_SPECIAL_UNSAMPLED : CLP_SPECIAL_UNKNOWN_WAIT)};
    if (cpu_wait) {
        p.wait = CLP_WAIT_CPU;
        p.span = span_of(t, s->flags);
    }
    /* A stack of another request says nothing of where the thread waits for a CPU in this one. */
    if (!l || !has_stack(l) ||
        (cpu_wait && l->span.local_root_span_id != p.span.local_root_span_id))
        return p;
    p.stack = last_stack(b, t, l);
    if (!cpu_wait) {
        p.wait = l->wait;
        p.span = l->span;
    }
    return p;
}

/* The managed frames from the leaf on, as they are in metadata. */
static enum clp_wait wait_of(const struct clp_build *b, const struct clp_def_thread *t,
                             const struct clp_reader_record *r)
{
    const struct clp_rec_sample *s = r->sample.rec;
    struct clp_wait_frame frames[CLP_WAIT_FRAMES_MAX];
    size_t n = 0;
    if (s->flags & CLP_SAMPLE_GC_WAIT)
        return CLP_WAIT_GC;
    if (s->flags & CLP_SAMPLE_CPU_WAIT)
        return CLP_WAIT_CPU;
    if (s->kind != CLP_SAMPLE_WALL || s->flags & CLP_SAMPLE_NO_STACK)
        return CLP_WAIT_NONE;
    for (uint32_t i = 0; i < s->rec.count && n < CLP_ARRAY_LEN(frames); i++) {
        uint64_t f = r->sample.frames[i];
        const struct clp_def_method *m = clp_frame_kind(f) == CLP_FRAME_MANAGED
                                             ? clp_definitions_method(&b->defs, clp_frame_id(f))
                                             : NULL;
        if (!m)
            continue;
        struct clp_managed_raw raw = clp_def_method_raw(m);
        frames[n++] = (struct clp_wait_frame){raw.type.at, raw.name.at, raw.type.len, raw.name.len};
    }
    return clp_wait_of(frames, n, (int)s->value2 - 1, t && t->kind == CLP_THREAD_NATIVE);
}

static struct place place_of_frames(struct clp_build *b, struct clp_def_thread *t,
                                    const struct clp_reader_record *r)
{
    const struct clp_rec_sample *s = r->sample.rec;
    struct place p = {.stack = stack_of(b, t, r->sample.frames, s->rec.count),
                      .wait = wait_of(b, t, r),
                      .span = span_of(t, s->flags)};
    if (t && !(s->flags & CLP_SAMPLE_NO_STACK)) {
        struct clp_def_last *l = s->kind == CLP_SAMPLE_CPU ? &t->cpu : &t->wall;
        l->stack = p.stack + 1;
        l->wait = p.wait;
        l->span = p.span;
        (void)!clp_def_last_keep(&b->defs, l, r->sample.frames, s->rec.count);
    }
    return p;
}

/* A thread lives while it runs and while it waits: CPU time is a part of its wall time. */
static void add_values(struct clp_build *b, const struct place *p, struct clp_def_thread *t,
                       const struct clp_rec_sample *s)
{
    double values[CLP_PROFILE_VALUES_MAX] = {0};
    bool cpu = s->kind == CLP_SAMPLE_CPU;
    int at_cpu = cpu ? b->value_at[CLP_SAMPLE_CPU] : -1, at_wall = b->value_at[CLP_SAMPLE_WALL];
    if (at_cpu < 0 && at_wall < 0)
        return;
    if (!cpu && p->wait == CLP_WAIT_IDLE && b->config.leave_out_idle) {
        b->idle_ns += (uint64_t)s->value;
        return;
    }
    if (at_cpu >= 0)
        values[at_cpu] = (double)s->value;
    if (at_wall >= 0)
        values[at_wall] = (double)s->value;
    clp_profile_add(b->profile, p->stack, labels_of(b, t, p->wait, &p->span), values);
    b->samples++;
}

static void add_sample(struct clp_build *b, const struct clp_reader_record *r)
{
    const struct clp_rec_sample *s = r->sample.rec;
    struct clp_def_thread *t = clp_definitions_thread(&b->defs, s->thread_id);
    if (s->kind != CLP_SAMPLE_CPU && s->kind != CLP_SAMPLE_WALL)
        return;
    if (t)
        renew_thread(b, t);
    else
        b->unknown_ids++;
    struct place p = s->rec.count > 0 ? place_of_frames(b, t, r) : place_without_frames(b, t, s);
    add_values(b, &p, t, s);
}

static void take_span(struct clp_build *b, const struct clp_reader_record *r)
{
    const struct clp_rec_span *s = r->span.rec;
    struct clp_def_thread *t = clp_definitions_thread(&b->defs, s->thread_id);
    clp_span_labels_record(&b->spans, r);
    if (!t) {
        b->unknown_ids++;
        return;
    }
    t->span = (struct clp_def_span){s->trace_high, s->trace_low, s->span_id, s->local_root_span_id,
                                    s->endpoint};
    memset(t->span_labels, 0, sizeof(t->span_labels));
}

/* ---- events -------------------------------------------------------------------------------- */

static uint32_t event_labels(struct clp_build *b, const struct clp_def_thread *t,
                             const struct clp_type_info *info, const struct clp_reader_record *r)
{
    struct clp_profile_label labels[THREAD_LABELS_MAX + CLP_EVENT_LABELS_MAX + CLP_SPAN_LABELS_MAX];
    struct clp_event_label_texts texts;
    struct clp_span_texts span_texts;
    struct clp_def_span span = span_of(t, r->event.rec->flags);
    size_t n = thread_labels(t, labels);
    n += clp_event_labels(&b->defs, info, r, &texts, labels + n);
    n += clp_span_labels_of(&b->spans, &span, &span_texts, labels + n);
    return clp_profile_labels(b->profile, labels, n);
}

static void count_exception(struct clp_build *b, const struct clp_reader_record *r)
{
    char name[CLP_NAME_MAX];
    clp_managed_type_name(r->event.texts[0], name, sizeof(name));
    clp_type_counts_add(&b->exceptions, name, r->event.rec->value);
}

static void add_event(struct clp_build *b, const struct clp_reader_record *r)
{
    const struct clp_rec_event *e = r->event.rec;
    const struct clp_type_info *info = clp_type_info(clp_type_of_kind(e->kind));
    struct clp_def_thread *t = clp_definitions_thread(&b->defs, e->thread_id);
    double values[CLP_PROFILE_VALUES_MAX] = {0};
    int at = b->value_at[e->kind];
    if (at < 0)
        return;
    if (e->value == 0 && e->value2 == 0) { /* what it is of may be told later */
        for (uint32_t i = 0; i < e->rec.count; i++)
            clp_definitions_use(&b->defs, r->event.frames[i]);
        return;
    }
    if (t)
        renew_thread(b, t);
    else
        b->unknown_ids++;
    if (e->kind == CLP_SAMPLE_EXCEPTION)
        count_exception(b, r);
    values[at] = e->value;
    if (info->values[1].type)
        values[at + 1] = e->value2;
    uint32_t stack = stack_of(b, t, r->event.frames, e->rec.count - (uint32_t)e->other_count);
    clp_profile_add(b->profile, stack, event_labels(b, t, info, r), values);
    b->samples++;
}

void clp_build_record(struct clp_build *b, const struct clp_reader_record *record)
{
    if (record->type == CLP_REC_SAMPLE)
        add_sample(b, record);
    else if (record->type == CLP_REC_EVENT)
        add_event(b, record);
    else if (record->type == CLP_REC_SPAN)
        take_span(b, record);
    else if (record->type == CLP_REC_ENDPOINT || record->type == CLP_REC_ROOT)
        clp_span_labels_record(&b->spans, record);
    else
        clp_definitions_add(&b->defs, record);
}

uint64_t clp_build_samples(const struct clp_build *b)
{
    return b->samples;
}

/* ---- windows ------------------------------------------------------------------------------- */

/* The parts of a profile that grow with what a target does; 0 stands for the whole ceiling. */
static struct clp_profile_limits limits_of(unsigned share)
{
    if (share <= 1)
        return (struct clp_profile_limits){0};
    return (struct clp_profile_limits){
        .strings = 65536 / share,
        .string_bytes = (16u << 20) / share,
        .functions = 32768 / share,
        .locations = 131072 / share,
        .stacks = 65536 / share,
        .stack_frames = 4194304 / share,
        .label_sets = 65536 / share,
        .samples = 65536 / share,
    };
}

/* A window that is still to begin. */
struct next_window {
    struct clp_profile *profile;
    int value_at[CLP_SAMPLE_KIND_COUNT];
};

/* The sample types that were asked for, those of CPU time last: how one is chosen by default is
 * pprof's rule, the last. */
static int make_window(const struct clp_build *b, struct next_window *ret)
{
    struct clp_value_type values[CLP_PROFILE_VALUES_MAX];
    uint32_t types = b->config.types ? b->config.types : 1u << CLP_TYPE_CPU;
    bool time = (types & (1u << CLP_TYPE_CPU | 1u << CLP_TYPE_WALL)) != 0;
    size_t n = 0;
    memset(ret->value_at, -1, sizeof(ret->value_at));
    for (int type = CLP_TYPE_COUNT - 1; type >= 0; type--) {
        const struct clp_type_info *info = clp_type_info((enum clp_profile_type)type);
        if (!(types & 1u << type))
            continue;
        ret->value_at[info->kind] = (int)n;
        for (size_t i = 0; i < CLP_TYPE_VALUES_MAX && info->values[i].type; i++)
            values[n++] = info->values[i];
    }
    struct clp_profile_config c = {
        .sample_types = values,
        .sample_type_count = n,
        .period_type = values[n - 1],
        .period = time ? (int64_t)b->config.cpu_interval_ns : 1,
        .limits = limits_of(b->share),
    };
    return clp_profile_new(&c, &ret->profile);
}

static void begin_window(struct clp_build *b, const struct next_window *w)
{
    b->profile = w->profile;
    memcpy(b->value_at, w->value_at, sizeof(b->value_at));
    b->window++;
    clp_definitions_turn(&b->defs, b->window);
    b->samples = 0;
    clp_map_done(&b->frames);
    clp_map_done(&b->functions);
    memset(b->specials, 0, sizeof(b->specials));
    map_main_binary(b);
}

/* The kinds of samples that a total is of, as 1 << kind; 0: of none. */
static uint32_t kinds_of_total(enum clp_counter c)
{
    if (c >= CLP_CTR_SAMPLED_CPU_NS && c <= CLP_CTR_SAMPLES)
        return 1u << CLP_SAMPLE_CPU | 1u << CLP_SAMPLE_WALL;
    if (c == CLP_CTR_EXCEPTIONS || c == CLP_CTR_EXCEPTIONS_RETHROWN)
        return 1u << CLP_SAMPLE_EXCEPTION;
    if (c >= CLP_CTR_ALLOC_OBJECTS && c <= CLP_CTR_ALLOC_COUNTED_BYTES)
        return 1u << CLP_SAMPLE_ALLOC;
    if (c == CLP_CTR_CONTENTIONS || c == CLP_CTR_CONTENTION_NS)
        return 1u << CLP_SAMPLE_LOCK;
    if (c == CLP_CTR_WAITS || c == CLP_CTR_WAIT_NS)
        return 1u << CLP_SAMPLE_WAIT;
    bool heap = c >= CLP_CTR_HEAP_GEN0_BYTES && c <= CLP_CTR_HEAP_PINNED_BYTES;
    return heap || (c >= CLP_CTR_GC_GEN0 && c <= CLP_CTR_GC_PAUSE_GEN2_NS)
               ? 1u << CLP_SAMPLE_GC | 1u << CLP_SAMPLE_LIVE
               : 0;
}

/* Totals of what was asked for, zeros as well; the library counts for all its readers, so that of
 * another's it may say more than is in this profile. The rest when there is something to tell. */
static bool is_told(const struct clp_build *b, enum clp_counter c, uint64_t value)
{
    uint32_t kinds = kinds_of_total(c);
    for (int kind = 0; kind < CLP_SAMPLE_KIND_COUNT; kind++)
        if (kinds & 1u << kind && b->value_at[kind] >= 0)
            return true;
    return !kinds && (value || c == CLP_CTR_PROCESS_CPU_NS);
}

/* One line each. */
static void comment_counters(struct clp_build *b, const struct clp_build_window *w)
{
    for (unsigned c = 0; c < CLP_CTR_COUNT; c++) {
        const struct clp_counter_info *info = clp_counter_info(c);
        uint64_t value = w->counters[c];
        /* States are told as they are at the window's end. The target's word: it may say anything.
         */
        if (!clp_counter_is_state(c))
            value = value > b->counters[c] ? value - b->counters[c] : 0;
        b->counted[c] = value;
        if (is_told(b, c, value))
            (void)!clp_profile_comment(b->profile, "%s=%llu %s", info->name,
                                       (unsigned long long)value, info->unit);
    }
    memcpy(b->counters, w->counters, sizeof(b->counters));
}

/* Each stratum of exceptions is of one type, so their sums are exact, however few stacks were kept;
 * but for the one that takes what finds no room. */
static void comment_exceptions(struct clp_build *b)
{
    struct clp_type_counts_top top;
    clp_type_counts_done(&b->ended_exceptions);
    b->ended_exceptions = b->exceptions;
    b->exceptions = (struct clp_type_counts){0};
    clp_type_counts_set_share(&b->exceptions, b->share);
    clp_type_counts_top(&b->ended_exceptions, &top);
    for (size_t i = 0; i < top.count; i++)
        (void)!clp_profile_comment(b->profile, "exceptions[%s]=%.0f count", top.of[i].name,
                                   top.of[i].n);
    if (top.others > 0)
        (void)!clp_profile_comment(b->profile, "exceptions[others]=%.0f count", top.others);
}

static void comment_own(struct clp_build *b)
{
    const struct {
        const char *name, *unit;
        uint64_t *value;
    } own[] = {
        {"agent_unknown_ids", "count", &b->unknown_ids},
        {"agent_definitions_refused", "count", &b->defs.refused},
        {"agent_definitions_evicted", "count", &b->defs.evicted},
        {"agent_threads_forgotten", "count", &b->defs.forgotten},
        {"agent_windows_lost", "count", &b->windows_lost},
        {"agent_idle_left_out", "nanoseconds", &b->idle_ns},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(own); i++) {
        if (*own[i].value)
            (void)!clp_profile_comment(b->profile, "%s=%llu %s", own[i].name,
                                       (unsigned long long)*own[i].value, own[i].unit);
        *own[i].value = 0;
    }
}

int clp_build_finish(struct clp_build *b, const struct clp_build_window *w,
                     struct clp_profile **ret)
{
    struct next_window next;
    int r = make_window(b, &next);
    if (r < 0) {
        b->windows_lost++;
        return r;
    }
    clp_profile_set_window(b->profile, w->start_unix_ns, w->duration_ns);
    (void)!clp_profile_comment(b->profile, "clrpulse %s", CLP_VERSION);
    comment_counters(b, w);
    comment_exceptions(b);
    comment_own(b);
    if (b->config.ticks && b->value_at[CLP_SAMPLE_ALLOC] >= 0)
        (void)!clp_profile_comment(b->profile,
                                   "allocations: bytes in all are right; their split over "
                                   "classes is an estimate of unknown error before "
                                   ".NET 10");
    clp_span_labels_close(&b->spans, b->profile);
    if (!b->config.names_later)
        clp_span_labels_name(&b->spans, b->profile);
    *ret = b->profile;
    begin_window(b, &next);
    return 0;
}

uint32_t clp_build_open_roots(const struct clp_build *b)
{
    return b->spans.open;
}

void clp_build_name(struct clp_build *b, struct clp_profile *p)
{
    clp_span_labels_name(&b->spans, p);
}

const struct clp_upload_number *clp_build_requests(const struct clp_build *b, size_t *ret_count)
{
    *ret_count = b->spans.ended_count;
    return b->spans.ended;
}

const uint64_t *clp_build_counted(const struct clp_build *b)
{
    return b->counted;
}

const struct clp_type_counts *clp_build_exceptions(const struct clp_build *b)
{
    return &b->ended_exceptions;
}

void clp_build_set_share(struct clp_build *b, unsigned share)
{
    b->share = CLP_MAX(share, 1u);
    b->defs.ceiling = CLP_BUILD_DEFINITIONS_BYTES / b->share;
    clp_type_counts_set_share(&b->exceptions, b->share);
}

void clp_build_set_types(struct clp_build *b, uint32_t types, uint64_t cpu_interval_ns)
{
    b->config.types = types;
    b->config.cpu_interval_ns = cpu_interval_ns;
}

int clp_build_new(const struct clp_build_config *config, struct clp_build **ret)
{
    struct clp_build *b = calloc(1, sizeof(*b));
    struct next_window first;
    if (!b)
        return -ENOMEM;
    b->config = *config;
    b->share = 1;
    clp_map_init(&b->frames, FRAME_CACHE_MAX);
    clp_map_init(&b->functions, FRAME_CACHE_MAX);
    clp_span_labels_init(&b->spans, config->spans);
    /* A tid can only be looked up where the target counts threads as we do. */
    clp_definitions_init(&b->defs, config->symbols, config->root_fd,
                         config->ns_pid == config->pid ? config->pid : 0,
                         CLP_BUILD_DEFINITIONS_BYTES);
    b->main_binary = config->main_binary ? strdup(config->main_binary) : NULL;
    if ((config->main_binary && !b->main_binary) || make_window(b, &first) < 0) {
        clp_build_free(b);
        return -ENOMEM;
    }
    begin_window(b, &first);
    *ret = b;
    return 0;
}

struct clp_build *clp_build_free(struct clp_build *b)
{
    if (!b)
        return NULL;
    clp_profile_free(b->profile);
    clp_map_done(&b->frames);
    clp_map_done(&b->functions);
    clp_definitions_done(&b->defs);
    clp_span_labels_done(&b->spans);
    clp_type_counts_done(&b->exceptions);
    clp_type_counts_done(&b->ended_exceptions);
    free(b->main_binary);
    free(b);
    return NULL;
}
