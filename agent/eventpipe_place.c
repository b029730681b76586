/* Samples into the profile: frames to names, labels. */
#include "agent/eventpipe_parts.h"

#include "sampler/symbols/managed_name.h"
#include "wire/tables.h"
#include "wire/wire.h"

#include <stdio.h>
#include <string.h>

#define FRAMES_MAX 1024u
#define FRAMES_OF_A_RUNTIME 100u
#define FLAG_DYNAMIC 1u
#define THROWING_TYPE "System.Runtime.EH"

/* ---- names --------------------------------------------------------------------------------- */

static struct clp_name_text text_of(const char *s, size_t len)
{
    return (struct clp_name_text){.at = s, .len = len};
}

/* "Ns.Type`1[System.Int32]" is a type and its arguments. */
static void split_arguments(const char *s, struct clp_name_text *name,
                            struct clp_name_text *arguments)
{
    size_t len = strlen(s), cut = strcspn(s, "[");
    *name = text_of(s, cut);
    *arguments = text_of("", 0);
    if (cut > 0 && cut + 1 < len && s[len - 1] == ']')
        *arguments = text_of(s + cut + 1, len - cut - 2);
    else
        *name = text_of(s, len);
}

static uint32_t make_location(struct clp_epb *b, const struct clp_body *y)
{
    char name[CLP_NAME_MAX], system_name[CLP_NAME_MAX];
    struct clp_managed_raw raw = {0};
    bool dynamic = (y->flags & FLAG_DYNAMIC) != 0;
    split_arguments(clp_bodies_text(b->bodies, y->type), &raw.type, &raw.type_args);
    split_arguments(clp_bodies_text(b->bodies, y->name), &raw.name, &raw.method_args);
    if (dynamic) {
        raw.type = text_of("", 0);
        raw.flags = CLP_METHOD_DYNAMIC;
    }
    clp_managed_name(&raw, name, sizeof(name));
    clp_managed_system_name(&raw, system_name, sizeof(system_name));
    struct clp_profile_line line = {
        .function = clp_profile_function(
            b->profile, &(struct clp_profile_function){.name = name, .system_name = system_name})};
    struct clp_profile_location l = {.lines = &line, .line_count = 1};
    return clp_profile_location(b->profile, &l);
}

static uint32_t body_location(struct clp_epb *b, uint32_t id)
{
    struct clp_body *y = clp_bodies_at(b->bodies, id);
    if (y->window != b->window) {
        y->location = make_location(b, y);
        y->window = b->window;
    }
    return y->location;
}

static uint32_t special(struct clp_epb *b, enum clp_special s)
{
    if (b->special_window != b->window) {
        memset(b->specials, 0, sizeof(b->specials));
        b->special_window = b->window;
    }
    if (s >= CLP_ARRAY_LEN(b->specials))
        return clp_profile_frame(b->profile, clp_special_text(s));
    if (!b->specials[s])
        b->specials[s] = clp_profile_frame(b->profile, clp_special_text(s)) + 1;
    return b->specials[s] - 1;
}

/* ---- stacks -------------------------------------------------------------------------------- */

static bool throws(struct clp_epb *b, uint32_t id)
{
    const char *type = clp_bodies_text(b->bodies, clp_bodies_at(b->bodies, id)->type);
    return strcmp(type, THROWING_TYPE) == 0;
}

struct resolved {
    uint32_t locations[FRAMES_MAX + 1];
    uint32_t count;
    uint64_t from, until; /* at other moments there may be other names */
    uint32_t unknown, gone;
};

/* Return addresses: the call lies before them, except at the leaf of a sample, where it does no
 * harm either but at the first byte of a body. */
static uint32_t find_frame(struct clp_epb *b, uint64_t address, bool leaf, uint64_t ticks)
{
    return clp_bodies_find(b->bodies, leaf ? address : address - 1, ticks);
}

static bool native_location(struct clp_epb *b, uint64_t address, uint32_t *ret)
{
    char name[CLP_NAME_MAX];
    if (!b->config.native_name ||
        !b->config.native_name(b->config.context, address, name, sizeof(name)))
        return false;
    *ret = clp_profile_frame(b->profile, name);
    return true;
}

static void resolve(struct clp_epb *b, const struct clp_epb_stack *s, uint64_t ticks,
                    struct resolved *r)
{
    bool at_leaf = s->kind != 0;
    r->count = r->unknown = r->gone = 0;
    r->from = 0;
    r->until = UINT64_MAX;
    for (uint32_t i = 0; i < s->len && r->count < FRAMES_MAX; i++) {
        uint64_t address = b->frames[s->first + i];
        uint32_t id = find_frame(b, address, i == 0, ticks);
        if (id == CLP_BODY_NONE &&
            native_location(b, i == 0 ? address : address - 1, &r->locations[r->count])) {
            r->count++;
            continue;
        }
        if (id == CLP_BODY_NONE || id == CLP_BODY_GONE) {
            bool none = id == CLP_BODY_NONE;
            r->unknown += none;
            r->gone += !none;
            r->locations[r->count++] =
                special(b, none ? CLP_SPECIAL_UNKNOWN : CLP_SPECIAL_DYNAMIC_GONE);
            at_leaf = false;
            continue;
        }
        if (at_leaf && throws(b, id))
            continue;
        at_leaf = false;
        const struct clp_body *body = clp_bodies_at(b->bodies, id);
        r->from = CLP_MAX(r->from, body->birth);
        r->until = CLP_MIN(r->until, body->death);
        r->locations[r->count++] = body_location(b, id);
    }
    if (r->count == 0) /* nothing but the frames that throw */
        r->locations[r->count++] = special(b, CLP_SPECIAL_UNKNOWN);
    if (s->len >= FRAMES_OF_A_RUNTIME)
        r->locations[r->count++] = special(b, CLP_SPECIAL_TRUNCATED);
}

/* The stack in the profile; false when a name is missing and it may wait. */
static bool profile_stack(struct clp_epb *b, const struct clp_epb_sample *s, bool force,
                          uint32_t *ret)
{
    struct clp_epb_stack *stack = &b->stacks[s->stack];
    uint64_t version = clp_bodies_version(b->bodies) + 1;
    struct resolved r;
    if (stack->version == version && stack->window == b->window && s->ticks >= stack->from &&
        s->ticks < stack->until) {
        *ret = stack->resolved;
        return true;
    }
    if (stack->missing == version && !force)
        return false;
    resolve(b, stack, s->ticks, &r);
    if (r.unknown > 0 && !force) {
        stack->missing = version;
        return false;
    }
    b->unknown_frames += r.unknown;
    b->gone_frames += r.gone;
    *ret = clp_profile_stack(b->profile, r.locations, r.count);
    if (r.unknown == 0 && r.gone == 0) {
        stack->version = version;
        stack->window = b->window;
        stack->from = r.from;
        stack->until = r.until;
        stack->resolved = *ret;
    }
    return true;
}

bool clp_epb_is_nameless(struct clp_epb *b, const struct clp_epb_sample *s)
{
    if (s->stack == CLP_EPB_NO_STACK || b->config.native_name)
        return false; /* a list of methods would tell nothing */
    struct clp_epb_stack *stack = &b->stacks[s->stack];
    uint64_t version = clp_bodies_version(b->bodies) + 1;
    if (stack->missing == version || stack->version == version)
        return stack->missing == version;
    for (uint32_t i = 0; i < stack->len; i++)
        if (find_frame(b, b->frames[stack->first + i], i == 0, s->ticks) == CLP_BODY_NONE) {
            stack->missing = version;
            return true;
        }
    return false;
}

uint32_t clp_epb_word_stack(struct clp_epb *b, const char *word)
{
    uint32_t only = clp_profile_frame(b->profile, word);
    return clp_profile_stack(b->profile, &only, 1);
}

/* ---- labels -------------------------------------------------------------------------------- */

static void find_name(struct clp_epb *b, struct clp_epb_thread *t, uint64_t tid)
{
    if (t->named || !b->config.thread_name)
        return;
    const char *name = b->config.thread_name(b->config.context, tid);
    if (name) {
        snprintf(t->name, sizeof(t->name), "%s", name);
        t->named = true;
    }
}

uint32_t clp_epb_thread_labels(struct clp_epb *b, uint64_t tid, const struct clp_epb_labels *more)
{
    struct clp_profile_label labels[3 + CLP_SPAN_LABELS_MAX];
    struct clp_span_texts texts;
    size_t n = 0;
    struct clp_epb_thread *t = tid ? clp_epb_thread_of(b, tid) : NULL;
    bool plain = !more->key && !more->span;
    if (t && plain && t->window == b->window)
        return t->labels;
    if (t) {
        find_name(b, t, tid);
        labels[n++] = (struct clp_profile_label){.key = "thread_id", .num = (int64_t)tid};
        if (*t->name)
            labels[n++] = (struct clp_profile_label){.key = "thread_name", .str = t->name};
    }
    if (more->key && more->text)
        labels[n++] = (struct clp_profile_label){.key = more->key, .str = more->text};
    if (more->span)
        n += clp_span_labels_of(&b->span_labels, more->span, &texts, labels + n);
    uint32_t id = clp_profile_labels(b->profile, labels, n);
    if (t && plain) {
        t->labels = id;
        t->window = b->window;
    }
    return id;
}

/* ---- samples ------------------------------------------------------------------------------- */

static const struct {
    uint8_t values[2];
    const char *label;
    const char *without_stack;
} kinds[] = {
    [CLP_EPB_WALL] = {{CLP_EPB_V_CPU, CLP_EPB_V_WALL}, NULL, "[unknown]"},
    [CLP_EPB_EXCEPTION] = {{CLP_EPB_V_EXCEPTIONS, CLP_EPB_V_COUNT}, "exception_type", "[unknown]"},
    [CLP_EPB_ALLOCATION] = {{CLP_EPB_V_ALLOC_OBJECTS, CLP_EPB_V_ALLOC_SPACE},
                            "allocation_class",
                            "[unknown]"},
    [CLP_EPB_LOCK] = {{CLP_EPB_V_LOCK_CONTENTIONS, CLP_EPB_V_LOCK_DELAY}, NULL, "[unknown]"},
    [CLP_EPB_GC] = {{CLP_EPB_V_GC_COLLECTIONS, CLP_EPB_V_GC_PAUSE}, "gc_generation", "[gc]"},
};

bool clp_epb_place(struct clp_epb *b, struct clp_epb_sample *s, bool force)
{
    double values[CLP_EPB_V_COUNT + 1] = {0};
    uint32_t stack;
    if (s->stack == CLP_EPB_NO_STACK)
        stack = clp_epb_word_stack(b, kinds[s->kind].without_stack);
    else if (!profile_stack(b, s, force, &stack))
        return false;
    values[b->columns[kinds[s->kind].values[0]]] += s->values[0];
    values[b->columns[kinds[s->kind].values[1]]] += s->values[1];
    b->exceptions += s->kind == CLP_EPB_EXCEPTION;
    b->contentions += s->kind == CLP_EPB_LOCK && s->values[0] > 0;
    struct clp_epb_labels more = {.span = clp_epb_spans_of(&b->spans, s->activity)};
    if (s->label != CLP_EPB_NO_LABEL) {
        more.key = kinds[s->kind].label;
        more.text = b->texts[s->label - 1];
    }
    clp_profile_add(b->profile, stack, clp_epb_thread_labels(b, s->tid, &more), values);
    return true;
}
