#include "agent/eventpipe_build.h"

#include "agent/eventpipe_parts.h"
#include "base/hash.h"
#include "base/vec.h"
#include "config/value.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLOCKS_MAX (1u << 18)
#define TEXTS_MAX (1u << 16)
#define THREADS_MAX (1u << 16)
#define FRAMES_OF_A_RUNTIME 100u /* a stack of this length was cut at its root */

/* ---- tables -------------------------------------------------------------------------------- */

struct stack_key {
    const struct clp_nettrace_event *e;
    uint8_t kind;
};

static bool same_stack(const void *table, uint32_t at, const void *key)
{
    const struct clp_epb *b = table;
    const struct stack_key *k = key;
    const struct clp_epb_stack *s = &b->stacks[at];
    return s->len == k->e->stack_len && s->kind == k->kind &&
           memcmp(b->frames + s->first, k->e->stack, s->len * sizeof(*b->frames)) == 0;
}

static int new_stack(struct clp_epb *b, const struct stack_key *k, uint64_t hash)
{
    uint32_t n = k->e->stack_len;
    int r = CLP_VEC_GROW(b->stacks, b->stack_cap, b->stack_count + 1, CLP_EPB_STACKS_MAX);
    if (r == 0)
        r = CLP_VEC_GROW(b->frames, b->frame_cap, b->frame_count + n, CLP_EPB_FRAMES_MAX);
    if (r == 0)
        r = clp_index_reserve(&b->stack_index);
    if (r < 0)
        return r;
    memcpy(b->frames + b->frame_count, k->e->stack, n * sizeof(*b->frames));
    b->stacks[b->stack_count] =
        (struct clp_epb_stack){.first = b->frame_count, .len = n, .kind = k->kind};
    clp_index_add(&b->stack_index, hash, b->stack_count);
    b->frame_count += n;
    b->stack_count++;
    return 0;
}

static uint32_t intern_stack(struct clp_epb *b, const struct clp_nettrace_event *e, uint8_t kind)
{
    struct stack_key k = {.e = e, .kind = kind};
    uint64_t hash = clp_hash_bytes(e->stack, e->stack_len * sizeof(*e->stack)) + k.kind;
    uint32_t at = clp_index_find(&b->stack_index, hash, same_stack, b, &k);
    if (at != CLP_INDEX_NONE)
        return at;
    return new_stack(b, &k, hash) < 0 ? CLP_EPB_NO_STACK : b->stack_count - 1;
}

uint32_t clp_epb_stack_of(struct clp_epb *b, const struct clp_nettrace_event *e,
                          enum clp_epb_kind kind)
{
    if (e->stack_len == 0)
        return CLP_EPB_NO_STACK;
    b->truncated += e->stack_len >= FRAMES_OF_A_RUNTIME;
    return intern_stack(b, e, kind == CLP_EPB_EXCEPTION);
}

uint32_t clp_epb_text(struct clp_epb *b, const char *text)
{
    size_t len = strlen(text);
    const union clp_map_value *v = clp_map_get(&b->text_map, text, len);
    if (v)
        return (uint32_t)v->u64;
    if (CLP_VEC_GROW(b->texts, b->text_cap, b->text_count + 1, TEXTS_MAX) < 0)
        return CLP_EPB_NO_LABEL;
    char *copy = strdup(text);
    union clp_map_value id = {.u64 = b->text_count + 1};
    if (!copy || clp_map_put(&b->text_map, text, len, id) < 0) {
        free(copy);
        return CLP_EPB_NO_LABEL;
    }
    b->texts[b->text_count++] = copy;
    return b->text_count;
}

struct clp_epb_thread *clp_epb_thread_of(struct clp_epb *b, uint64_t tid)
{
    struct clp_epb_thread *t = clp_map_get_ptr_u64(&b->threads, tid);
    if (t)
        return t;
    t = calloc(1, sizeof(*t));
    if (!t || clp_map_put_u64(&b->threads, tid, (union clp_map_value){.ptr = t}) < 0) {
        free(t);
        return NULL;
    }
    return t;
}

void clp_epb_add(struct clp_epb *b, const struct clp_epb_sample *s)
{
    if (CLP_VEC_GROW(b->samples, b->sample_cap, b->sample_count + 1, CLP_EPB_SAMPLES_MAX) < 0) {
        b->lost_samples++;
        return;
    }
    b->samples[b->sample_count++] = *s;
    b->all_samples++;
}

/* ---- what is told ---------------------------------------------------------------------------- */

void clp_epb_burst(struct clp_epb *b, uint64_t from, uint64_t to, uint64_t period)
{
    if (to <= from ||
        CLP_VEC_GROW(b->bursts, b->burst_cap, b->burst_count + 1, CLP_EPB_BURSTS_MAX) < 0)
        return;
    b->bursts[b->burst_count++] = (struct clp_epb_burst){.from = from, .to = to, .period = period};
}

void clp_epb_clock(struct clp_epb *b, uint64_t tid, uint64_t from, uint64_t to, uint64_t cpu_ns)
{
    if (CLP_VEC_GROW(b->clocks, b->clock_cap, b->clock_count + 1, CLOCKS_MAX) < 0) {
        b->short_lived_ns += cpu_ns; /* the total stays */
        return;
    }
    b->clocks[b->clock_count++] =
        (struct clp_epb_clock){.tid = tid, .from = from, .to = to, .cpu_ns = cpu_ns};
}

void clp_epb_short_lived(struct clp_epb *b, uint64_t cpu_ns)
{
    b->short_lived_ns += cpu_ns;
}

void clp_epb_settle(struct clp_epb *b, uint64_t until, uint64_t named_until)
{
    uint32_t kept = 0;
    uint64_t place_until = CLP_MIN(until, named_until);
    clp_epb_settle_values(b, until);
    for (uint32_t i = 0; i < b->sample_count; i++) {
        struct clp_epb_sample *s = &b->samples[i];
        bool placed = s->settled && s->ticks < place_until && clp_epb_place(b, s, false);
        if (!placed)
            b->samples[kept++] = *s;
    }
    b->sample_count = kept;
}

void clp_epb_lost_code(struct clp_epb *b)
{
    clp_bodies_doubt(b->bodies);
}

/* ---- windows ------------------------------------------------------------------------------- */

static const struct {
    struct clp_value_type type;
    enum clp_epb_want want;
} columns[CLP_EPB_V_COUNT] = {
    [CLP_EPB_V_CPU] = {{"cpu", "nanoseconds"}, CLP_EPB_CPU},
    [CLP_EPB_V_WALL] = {{"wall", "nanoseconds"}, CLP_EPB_WALLTIME},
    [CLP_EPB_V_EXCEPTIONS] = {{"exceptions", "count"}, CLP_EPB_EXCEPTIONS},
    [CLP_EPB_V_ALLOC_OBJECTS] = {{"alloc_objects", "count"}, CLP_EPB_ALLOCATIONS},
    [CLP_EPB_V_ALLOC_SPACE] = {{"alloc_space", "bytes"}, CLP_EPB_ALLOCATIONS},
    [CLP_EPB_V_LOCK_CONTENTIONS] = {{"lock_contentions", "count"}, CLP_EPB_LOCKS},
    [CLP_EPB_V_LOCK_DELAY] = {{"lock_delay", "nanoseconds"}, CLP_EPB_LOCKS},
    [CLP_EPB_V_GC_COLLECTIONS] = {{"gc_collections", "count"}, CLP_EPB_COLLECTIONS},
    [CLP_EPB_V_GC_PAUSE] = {{"gc_pause", "nanoseconds"}, CLP_EPB_COLLECTIONS},
};

/* By name, because not every type of the settings is an event's, nor the other way round. */
uint32_t clp_epb_wants(uint32_t types)
{
    static const struct {
        const char *type;
        enum clp_epb_want want;
    } names[] = {
        {"cpu", CLP_EPB_CPU},
        {"wall", CLP_EPB_WALLTIME},
        {"exceptions", CLP_EPB_EXCEPTIONS},
        {"allocations", CLP_EPB_ALLOCATIONS},
        {"locks", CLP_EPB_LOCKS},
        {"gc", CLP_EPB_COLLECTIONS},
    };
    uint32_t wants = 0;
    for (size_t i = 0; i < CLP_ARRAY_LEN(names); i++)
        for (unsigned t = 0; t < CLP_TYPE_COUNT; t++)
            if (types >> t & 1 &&
                strcmp(clp_profile_type_name((enum clp_profile_type)t), names[i].type) == 0)
                wants |= names[i].want;
    return types ? wants : CLP_EPB_ALL;
}

static void choose_columns(struct clp_epb *b)
{
    for (unsigned v = 0; v < CLP_EPB_V_COUNT; v++)
        if (b->config.wants & columns[v].want)
            b->columns[v] = b->column_count++;
    for (unsigned v = 0; v < CLP_EPB_V_COUNT; v++)
        if (!(b->config.wants & columns[v].want))
            b->columns[v] = b->column_count;
    b->columns[CLP_EPB_V_COUNT] = b->column_count;
}

static int new_profile(const struct clp_epb *b, struct clp_profile **ret)
{
    struct clp_value_type types[CLP_EPB_V_COUNT];
    for (unsigned v = 0; v < CLP_EPB_V_COUNT; v++)
        if (b->columns[v] < b->column_count)
            types[b->columns[v]] = columns[v].type;
    struct clp_profile_config c = {
        .sample_types = types,
        .sample_type_count = b->column_count,
        .default_sample_type = types[0].type,
        .period_type = columns[CLP_EPB_V_CPU].type,
    };
    return clp_profile_new(&c, ret);
}

static void comment(struct clp_epb *b, const struct clp_epb_window *w)
{
    const struct {
        const char *name;
        uint64_t value;
    } told[] = {
        {"wall_samples", b->wall_samples},  {"exceptions", b->exceptions},
        {"contentions", b->contentions},    {"events_lost", w->lost},
        {"samples_lost", b->lost_samples},  {"sessions_refused", w->refused_sessions},
        {"stacks_truncated", b->truncated}, {"frames_unknown", b->unknown_frames},
        {"frames_gone", b->gone_frames},    {"methods_refused", clp_bodies_refused(b->bodies)},
        {"method_lists", w->lists},
    };
    (void)!clp_profile_comment(b->profile, "clrpulse %s, engine eventpipe", CLP_VERSION);
    for (size_t i = 0; i < CLP_ARRAY_LEN(told); i++)
        if (told[i].value || i < 3)
            (void)!clp_profile_comment(b->profile, "%s=%llu count", told[i].name,
                                       (unsigned long long)told[i].value);
    if (b->ticks_used)
        (void)!clp_profile_comment(b->profile,
                                   "allocations: from AllocationTick; bytes are right in all, "
                                   "their split over classes is an estimate of unknown bias");
    if (!b->config.cpu)
        (void)!clp_profile_comment(b->profile, "cpu: not known, no thread clocks in this stream");
    if (b->config.unsampled && (b->config.wants & (CLP_EPB_CPU | CLP_EPB_WALLTIME)))
        (void)!clp_profile_comment(b->profile, "wall: not known, and CPU only by thread: this "
                                               "runtime, compiled ahead of time, takes no samples");
    if (w->partial)
        (void)!clp_profile_comment(b->profile, "partial: the target ended or the stream was cut");
}

/* Waits that have not ended, in the order of their threads' coming; the rest is the next window's.
 */
static void report_open_waits(struct clp_epb *b, uint64_t end_ticks)
{
    struct clp_map_item i;
    for (uint32_t at = clp_map_begin(&b->threads); clp_map_next(&b->threads, &at, &i);) {
        struct clp_epb_thread *t = i.value->ptr;
        if (t->lock_ticks == 0 || end_ticks <= t->lock_ticks)
            continue;
        struct clp_epb_sample s = {
            .ticks = t->lock_ticks,
            .tid = i.key_u64,
            .values = {t->lock_told ? 0 : 1, (double)(end_ticks - t->lock_ticks)},
            .stack = t->lock_stack,
            .activity = t->lock_activity,
            .kind = CLP_EPB_LOCK,
            .settled = true,
        };
        t->lock_ticks = end_ticks;
        t->lock_told = true;
        clp_epb_add(b, &s);
    }
}

/* CPU of threads that no sample took: native ones. */
static void report_carried(struct clp_epb *b)
{
    struct clp_map_item i;
    if (!(b->config.wants & CLP_EPB_CPU))
        return;
    for (uint32_t at = clp_map_begin(&b->threads); clp_map_next(&b->threads, &at, &i);) {
        struct clp_epb_thread *t = i.value->ptr;
        double values[CLP_EPB_V_COUNT + 1] = {0};
        char word[96];
        if (t->carry_ns <= 0)
            continue;
        uint32_t labels =
            clp_epb_thread_labels(b, i.key_u64, &(struct clp_epb_labels){0}); /* finds the name */
        values[b->columns[CLP_EPB_V_CPU]] = t->carry_ns;
        snprintf(word, sizeof(word), "[native %s]", *t->name ? t->name : "thread");
        clp_profile_add(b->profile, clp_epb_word_stack(b, word), labels, values);
        t->carry_ns = 0;
    }
    if (b->short_lived_ns > 0) {
        double values[CLP_EPB_V_COUNT + 1] = {0};
        values[b->columns[CLP_EPB_V_CPU]] = (double)b->short_lived_ns;
        clp_profile_add(b->profile, clp_epb_word_stack(b, "[short-lived threads]"),
                        CLP_PROFILE_NO_LABELS, values);
    }
}

/* The stacks of what goes on into the next window move to the front; the others are forgotten. */
static uint32_t keep_stack(struct clp_epb *b, const struct clp_epb *old, uint32_t stack)
{
    if (stack == CLP_EPB_NO_STACK)
        return stack;
    const struct clp_epb_stack *s = &old->stacks[stack];
    struct clp_nettrace_event e = {.stack = old->frames + s->first, .stack_len = s->len};
    return intern_stack(b, &e, s->kind);
}

static void keep_stacks(struct clp_epb *b)
{
    struct clp_map_item i;
    struct clp_epb old = *b;
    b->stacks = NULL;
    b->frames = NULL;
    b->stack_count = b->stack_cap = b->frame_count = b->frame_cap = 0;
    clp_index_clear(&b->stack_index);
    for (uint32_t k = 0; k < b->sample_count; k++)
        b->samples[k].stack = keep_stack(b, &old, b->samples[k].stack);
    for (uint32_t at = clp_map_begin(&b->threads); clp_map_next(&b->threads, &at, &i);) {
        struct clp_epb_thread *t = i.value->ptr;
        if (t->lock_ticks)
            t->lock_stack = keep_stack(b, &old, t->lock_stack);
    }
    free(old.stacks);
    free(old.frames);
}

/* Activities that have ended and that nothing refers to any more, when they are many. */
static void forget_activities(struct clp_epb *b)
{
    struct clp_epb_spans old = b->spans;
    struct clp_map_item i;
    if (old.count < CLP_EPB_ACTIVITIES_MAX / 2)
        return;
    clp_epb_spans_init(&b->spans);
    for (uint32_t k = 0; k < old.count; k++)
        if (!old.items[k].ended && old.items[k].span.span_id)
            clp_epb_spans_copy(&b->spans, &old, k + 1);
    for (uint32_t k = 0; k < b->sample_count; k++)
        b->samples[k].activity = clp_epb_spans_copy(&b->spans, &old, b->samples[k].activity);
    for (uint32_t at = clp_map_begin(&b->threads); clp_map_next(&b->threads, &at, &i);) {
        struct clp_epb_thread *t = i.value->ptr;
        t->lock_activity = clp_epb_spans_copy(&b->spans, &old, t->lock_activity);
    }
    clp_epb_spans_done(&old);
}

static void begin_window(struct clp_epb *b, struct clp_profile *profile)
{
    b->profile = profile;
    b->window++;
    b->burst_count = 0;
    b->wall_samples = b->lost_samples = b->truncated = b->unknown_frames = b->gone_frames = 0;
    b->ticks_used = b->exceptions = b->contentions = b->short_lived_ns = 0;
    b->all_samples = b->sample_count;
    keep_stacks(b);
    forget_activities(b);
}

/* Those that are younger than the window come to the front. */
static void place_window(struct clp_epb *b, uint64_t end_ticks)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < b->sample_count; i++) {
        struct clp_epb_sample s = b->samples[i];
        if (s.ticks < end_ticks)
            (void)clp_epb_place(b, &s, true);
        else
            b->samples[kept++] = s;
    }
    b->sample_count = kept;
}

void clp_epb_begin(struct clp_epb *b, uint64_t start_ticks)
{
    b->start_ticks = start_ticks;
}

int clp_epb_finish(struct clp_epb *b, const struct clp_epb_window *w, struct clp_profile **ret)
{
    struct clp_profile *next;
    int r = new_profile(b, &next);
    if (r < 0)
        return r;
    report_open_waits(b, w->end_ticks);
    clp_epb_settle(b, w->end_ticks, w->end_ticks);
    place_window(b, w->end_ticks);
    report_carried(b);
    clp_profile_set_window(b->profile, w->start_unix_ns, w->duration_ns);
    comment(b, w);
    clp_span_labels_close(&b->span_labels, b->profile);
    clp_span_labels_name(&b->span_labels, b->profile);
    *ret = b->profile;
    begin_window(b, next);
    clp_bodies_forget_dead(b->bodies, w->end_ticks);
    return 0;
}

uint32_t clp_epb_nameless(struct clp_epb *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->sample_count; i++)
        n += b->samples[i].settled && clp_epb_is_nameless(b, &b->samples[i]);
    return n;
}

uint64_t clp_epb_samples(const struct clp_epb *b)
{
    return b->all_samples;
}

int clp_epb_new(const struct clp_epb_config *config, struct clp_epb **ret)
{
    struct clp_epb *b = calloc(1, sizeof(*b));
    struct clp_profile *first;
    if (!b)
        return -ENOMEM;
    b->config = *config;
    if (b->config.wants == 0)
        b->config.wants = CLP_EPB_ALL;
    choose_columns(b);
    clp_index_init(&b->stack_index);
    clp_map_init(&b->text_map, TEXTS_MAX);
    clp_epb_spans_init(&b->spans);
    clp_span_labels_init(&b->span_labels, config->spans);
    clp_map_init(&b->threads, THREADS_MAX);
    if (clp_bodies_new(&b->bodies) < 0 || new_profile(b, &first) < 0) {
        clp_epb_free(b);
        return -ENOMEM;
    }
    begin_window(b, first);
    *ret = b;
    return 0;
}

struct clp_epb *clp_epb_free(struct clp_epb *b)
{
    struct clp_map_item i;
    if (!b)
        return NULL;
    for (uint32_t at = clp_map_begin(&b->threads); clp_map_next(&b->threads, &at, &i);)
        free(i.value->ptr);
    clp_map_done(&b->threads);
    clp_map_done(&b->text_map);
    clp_epb_spans_done(&b->spans);
    clp_span_labels_done(&b->span_labels);
    for (uint32_t k = 0; k < b->text_count; k++)
        free(b->texts[k]);
    clp_index_done(&b->stack_index);
    clp_bodies_free(b->bodies);
    clp_profile_free(b->profile);
    free(b->texts);
    free(b->samples);
    free(b->clocks);
    free(b->bursts);
    free(b->sorted);
    free(b->stacks);
    free(b->frames);
    free(b);
    return NULL;
}
