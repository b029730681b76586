/* What each event means: payloads are read by the layouts of sampler/nettrace/clr_events.def. */
#include "agent/eventpipe_parts.h"

#include "base/core/bytes.h"
#include "base/core/text.h"
#include "sampler/nettrace/clr.h"

#include <math.h>
#include <string.h>

#define TEXT_BYTES 1024u
#define SAMPLING_MEAN_BYTES 102400.0 /* of AllocationSampled */
#define SUSPEND_FOR_GC 1u
#define SUSPEND_FOR_GC_PREPARATION 6u

/* A NUL-terminated UTF-16 text; what does not fit is cut on a character. */
static void take_text(struct clp_bytes *c, char *buf, size_t cap)
{
    uint16_t units[TEXT_BYTES];
    struct clp_text t = clp_text_in(buf, cap);
    size_t n = 0;
    for (uint16_t u; clp_bytes_left(c) >= 2 && (u = clp_bytes_u16(c)) != 0;)
        if (n < TEXT_BYTES)
            units[n++] = u;
    clp_text_utf16(&t, units, n);
}

static struct clp_bytes payload_of(const struct clp_nettrace_event *e)
{
    return clp_bytes_of(e->payload, e->payload_len);
}

/* ---- code ---------------------------------------------------------------------------------- */

enum told { TOLD_LOADED, TOLD_LISTED, TOLD_UNLOADED };

static void take_method(struct clp_epb *b, const struct clp_nettrace_event *e, enum told told)
{
    char type[TEXT_BYTES], name[TEXT_BYTES], signature[TEXT_BYTES];
    struct clp_bytes c = payload_of(e);
    struct clp_body_told t = {
        .ticks = e->ticks, .type = type, .name = name, .signature = signature};
    (void)clp_bytes_u64(&c); /* method */
    (void)clp_bytes_u64(&c); /* module */
    t.start = clp_bytes_u64(&c);
    t.size = clp_bytes_u32(&c);
    (void)clp_bytes_u32(&c); /* token */
    t.flags = clp_bytes_u32(&c);
    if (c.bad)
        return;
    take_text(&c, type, sizeof(type));
    take_text(&c, name, sizeof(name));
    take_text(&c, signature, sizeof(signature));
    if (told == TOLD_LOADED)
        clp_bodies_load(b->bodies, &t);
    else if (told == TOLD_LISTED)
        clp_bodies_list(b->bodies, &t);
    else
        clp_bodies_unload(b->bodies, &t);
}

/* ---- samples ------------------------------------------------------------------------------- */

static void add(struct clp_epb *b, const struct clp_nettrace_event *e, enum clp_epb_kind kind,
                uint32_t label, double first, double second)
{
    struct clp_epb_sample s = {
        .ticks = e->ticks,
        .tid = e->thread_id,
        .values = {first, second},
        .stack = clp_epb_stack_of(b, e, kind),
        .label = label,
        .activity = clp_epb_spans_note(&b->spans, e->activity),
        .kind = (uint8_t)kind,
        .settled = kind != CLP_EPB_WALL,
    };
    clp_epb_add(b, &s);
}

static void take_sample(struct clp_epb *b, const struct clp_nettrace_event *e)
{
    b->wall_samples++;
    add(b, e, CLP_EPB_WALL, CLP_EPB_NO_LABEL, 0, 0);
}

static void take_exception(struct clp_epb *b, const struct clp_nettrace_event *e)
{
    char type[TEXT_BYTES];
    struct clp_bytes c = payload_of(e);
    take_text(&c, type, sizeof(type));
    add(b, e, CLP_EPB_EXCEPTION, clp_epb_text(b, type), 1, 0);
}

/* Runtimes write "NULL" for a text that they do not have. Programs compiled ahead of time have no
 * names of classes, so that there it is not the name of one. */
static uint32_t class_label(struct clp_epb *b, const char *type)
{
    bool unnamed = b->config.native_name && strcmp(type, "NULL") == 0;
    return unnamed ? CLP_EPB_NO_LABEL : clp_epb_text(b, type);
}

static void take_allocation(struct clp_epb *b, const struct clp_nettrace_event *e)
{
    char type[TEXT_BYTES];
    struct clp_bytes c = payload_of(e);
    (void)clp_bytes_u32(&c); /* kind */
    (void)clp_bytes_u16(&c); /* instance */
    (void)clp_bytes_u64(&c); /* type id */
    take_text(&c, type, sizeof(type));
    (void)clp_bytes_u64(&c); /* address */
    double size = (double)clp_bytes_u64(&c);
    if (c.bad || size <= 0)
        return;
    double objects = -1 / expm1(-size / SAMPLING_MEAN_BYTES);
    add(b, e, CLP_EPB_ALLOCATION, class_label(b, type), objects, objects * size);
}

static void take_tick(struct clp_epb *b, const struct clp_nettrace_event *e)
{
    char type[TEXT_BYTES];
    struct clp_bytes c = payload_of(e);
    (void)clp_bytes_u32(&c); /* amount, 32 bits */
    (void)clp_bytes_u32(&c); /* kind */
    (void)clp_bytes_u16(&c); /* instance */
    double amount = (double)clp_bytes_u64(&c);
    (void)clp_bytes_u64(&c); /* type id */
    take_text(&c, type, sizeof(type));
    (void)clp_bytes_u32(&c); /* heap */
    (void)clp_bytes_u64(&c); /* address */
    double size = (double)clp_bytes_u64(&c);
    if (c.bad)
        return;
    b->ticks_used++;
    add(b, e, CLP_EPB_ALLOCATION, class_label(b, type), size > 0 ? amount / size : 1, amount);
}

static void begin_wait(struct clp_epb *b, const struct clp_nettrace_event *e)
{
    struct clp_epb_thread *t = clp_epb_thread_of(b, e->thread_id);
    if (!t)
        return;
    t->lock_ticks = e->ticks;
    t->lock_told = false;
    t->lock_stack = clp_epb_stack_of(b, e, CLP_EPB_LOCK);
    t->lock_activity = clp_epb_spans_note(&b->spans, e->activity);
}

static void end_wait(struct clp_epb *b, const struct clp_nettrace_event *e)
{
    struct clp_epb_thread *t = clp_epb_thread_of(b, e->thread_id);
    struct clp_bytes c = payload_of(e);
    double ns;
    (void)clp_bytes_u8(&c);  /* flags */
    (void)clp_bytes_u16(&c); /* instance */
    uint64_t bits = clp_bytes_u64(&c);
    memcpy(&ns, &bits, sizeof(ns));
    if (c.bad || !(ns >= 0 && ns < 1e18))
        return;
    bool begun = t && t->lock_ticks, told = begun && t->lock_told;
    if (told) /* the window before has its beginning */
        ns = CLP_MIN(ns, (double)(e->ticks - CLP_MIN(t->lock_ticks, e->ticks)));
    struct clp_epb_sample s = {
        .ticks = begun ? t->lock_ticks : e->ticks,
        .tid = e->thread_id,
        .values = {told ? 0 : 1, ns},
        .stack = begun ? t->lock_stack : CLP_EPB_NO_STACK,
        .activity = begun ? t->lock_activity : clp_epb_spans_note(&b->spans, e->activity),
        .kind = CLP_EPB_LOCK,
        .settled = true,
    };
    if (t)
        t->lock_ticks = 0;
    clp_epb_add(b, &s);
}

/* ---- collections --------------------------------------------------------------------------- */

/* Suspensions for other reasons are mostly those of the sampler. */
static void begin_suspension(struct clp_epb *b, const struct clp_nettrace_event *e)
{
    struct clp_bytes c = payload_of(e);
    uint32_t reason = clp_bytes_u32(&c);
    bool gc = reason == SUSPEND_FOR_GC || reason == SUSPEND_FOR_GC_PREPARATION;
    b->gc_began = !c.bad && gc ? e->ticks : 0;
}

static void begin_collection(struct clp_epb *b, const struct clp_nettrace_event *e)
{
    static const char *const generations[] = {"0", "1", "2"};
    struct clp_bytes c = payload_of(e);
    (void)clp_bytes_u32(&c); /* number */
    uint32_t generation = clp_bytes_u32(&c);
    b->gc_count++;
    b->gc_label = clp_epb_text(b, generation < CLP_ARRAY_LEN(generations) ? generations[generation]
                                                                          : "other");
}

static void end_suspension(struct clp_epb *b, const struct clp_nettrace_event *e)
{
    if (b->gc_began == 0)
        return;
    struct clp_epb_sample s = {
        .ticks = e->ticks,
        .values = {b->gc_count, (double)(e->ticks - b->gc_began)},
        .stack = CLP_EPB_NO_STACK,
        .label = b->gc_label,
        .kind = CLP_EPB_GC,
        .settled = true,
    };
    clp_epb_add(b, &s);
    b->gc_began = 0;
    b->gc_count = 0;
}

/* ---- which --------------------------------------------------------------------------------- */

static void take_code(struct clp_epb *b, const struct clp_nettrace_event *e)
{
    if (e->meta->event_id == CLP_CLR_METHOD_LOAD)
        take_method(b, e, TOLD_LOADED);
    else if (e->meta->event_id == CLP_CLR_METHOD_UNLOAD)
        take_method(b, e, TOLD_UNLOADED);
}

static const struct {
    enum clp_clr_id id;
    enum clp_epb_want want;
    void (*take)(struct clp_epb *b, const struct clp_nettrace_event *e);
} takers[] = {
    {CLP_CLR_EXCEPTION, CLP_EPB_EXCEPTIONS, take_exception},
    {CLP_CLR_ALLOCATION_SAMPLED, CLP_EPB_ALLOCATIONS, take_allocation},
    {CLP_CLR_ALLOCATION_TICK, CLP_EPB_ALLOCATIONS, take_tick},
    {CLP_CLR_CONTENTION_START, CLP_EPB_LOCKS, begin_wait},
    {CLP_CLR_CONTENTION_STOP, CLP_EPB_LOCKS, end_wait},
    {CLP_CLR_GC_SUSPEND_BEGIN, CLP_EPB_COLLECTIONS, begin_suspension},
    {CLP_CLR_GC_START, CLP_EPB_COLLECTIONS, begin_collection},
    {CLP_CLR_GC_RESTART_END, CLP_EPB_COLLECTIONS, end_suspension},
};

static void take_runtime(struct clp_epb *b, const struct clp_nettrace_event *e)
{
    take_code(b, e);
    for (size_t i = 0; i < CLP_ARRAY_LEN(takers) && e->ticks >= b->start_ticks; i++)
        if ((uint32_t)takers[i].id == e->meta->event_id && (b->config.wants & takers[i].want))
            takers[i].take(b, e);
}

static bool wants_sample(const struct clp_epb *b, const struct clp_nettrace_event *e)
{
    return e->ticks >= b->start_ticks && (b->config.wants & (CLP_EPB_CPU | CLP_EPB_WALLTIME));
}

void clp_epb_event(struct clp_epb *b, const struct clp_nettrace_event *e)
{
    if (e->meta->known == CLP_PROVIDER_SAMPLE && wants_sample(b, e))
        take_sample(b, e);
    else if (e->meta->known == CLP_PROVIDER_RUNTIME)
        take_runtime(b, e);
    else if (e->meta->known == CLP_PROVIDER_DIAGNOSTIC_SOURCE)
        clp_epb_spans_event(&b->spans, e);
    else if (e->meta->known == CLP_PROVIDER_RUNDOWN && e->meta->event_id == CLP_CLR_METHOD_UNLOAD)
        take_method(b, e, TOLD_LISTED);
}
