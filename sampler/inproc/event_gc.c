/* Collections: each one, exactly. The stack is that of the thread that caused it; pauses go to the
 * collection that began in them, and those of a background collection to it.
 *
 * A pause ends where the runtime begins to let its threads go, as in GC.GetTotalPauseDuration: how
 * soon each of them runs is the scheduler's affair.
 *
 * Events come one after the other: all of them are raised by whoever holds the collector's lock. */
#include "sampler/inproc/event_gc.h"

#include "sampler/inproc/event_live.h"
#include "sampler/unwind/walk.h"

#include <string.h>

#define GENERATIONS 3u
#define TYPE_BACKGROUND 1u

/* Reasons of a suspension that are collections; the others are somebody else's (dotnet/runtime,
 * ThreadSuspend::SUSPEND_REASON). */
enum { SUSPEND_FOR_GC = 1, SUSPEND_FOR_GC_PREP = 6 };

static const char *const reasons[] = {
    "small object allocation",
    "induced",
    "low memory",
    "empty",
    "large object allocation",
    "out of space (small)",
    "out of space (large)",
    "induced, not forced",
    "stress",
    "low memory, blocking",
    "induced, compacting",
    "low memory, host",
    "pinned objects",
    "low memory, host, blocking",
    "background, tuning",
    "background, stepping",
    "induced, aggressive",
};
static const char *const types[] = {"blocking", "background", "foreground"};

/* Who caused it. Its own copy: a background collection outlives epochs. */
struct trigger {
    bool known;
    struct clp_event_member member;
    struct clp_thread thread;
    uint64_t frames[CLP_WALK_FRAMES_MAX + 2];
};

struct pause {
    double ns;
    double suspension_ns; /* the part of it in which threads were being stopped */
};

struct collection {
    bool known;
    uint32_t number, generation, reason, type;
    uint64_t time_ns;
};

/* Loop. */
static struct {
    struct trigger trigger;   /* of the collection that is about to begin or under way */
    uint64_t suspend_ns;      /* when the suspension of a collection began; 0: none */
    uint64_t suspended_ns;    /* when all threads were stopped for it; 0: not yet */
    struct collection now[4]; /* began in this pause */
    unsigned count;
    struct collection background; /* under way */
    struct trigger background_trigger;
    uint32_t last_number;
    struct clp_event_totals totals;
} G;

/* As the last collection left it; written by callbacks. */
static _Atomic uint64_t heap_bytes[CLP_EVENT_HEAP_PARTS];

/* ---- callback ---- */

static void put(const struct clp_event_here *h, enum clp_event_type type, uint64_t number,
                uint64_t number2)
{
    struct clp_event *e = clp_event_take(h, type, type == CLP_EVENT_GC_TRIGGER, NULL);
    if (!e)
        return;
    e->number = number;
    e->number2 = number2;
    clp_event_commit(e);
}

/* Four times {u64 size | u64 promoted} | u64 | u64 | u32 pinned | u32 | u32 handles | u16 | u64
 * size of the pinned heap. */
static void note_heap(const struct clp_event_here *h)
{
    static const uint8_t offsets[CLP_EVENT_HEAP_PARTS] = {0, 16, 32, 48, 94};
    for (size_t i = 0; i < CLP_EVENT_HEAP_PARTS; i++)
        atomic_store_explicit(&heap_bytes[i], clp_event_u64(h, offsets[i]), memory_order_relaxed);
}

/* 1 Start: u32 number | u32 generation | u32 reason | u32 type. 2 End: u32 number. 7 RestartBegin.
 * 8 SuspendEnd. 9 SuspendBegin: u32 reason. 35 Triggered: u32 reason. */
void clp_event_gc(const struct clp_event_here *h, uint32_t id)
{
    switch (id) {
    case 1:
        put(h, CLP_EVENT_GC_START, clp_event_u32(h, 0) | (uint64_t)clp_event_u32(h, 4) << 32,
            clp_event_u32(h, 8) | (uint64_t)clp_event_u32(h, 12) << 32);
        break;
    case 2:
        put(h, CLP_EVENT_GC_END, clp_event_u32(h, 0), 0);
        break;
    case 4:
        note_heap(h);
        break;
    case 7:
        put(h, CLP_EVENT_GC_RESTART, 0, 0);
        break;
    case 8:
        put(h, CLP_EVENT_GC_SUSPENDED, 0, 0);
        break;
    case 9:
        put(h, CLP_EVENT_GC_SUSPEND, clp_event_u32(h, 0), 0);
        break;
    default:
        put(h, CLP_EVENT_GC_TRIGGER, clp_event_u32(h, 0), 0);
    }
}

/* ---- loop ---- */

static void keep(struct trigger *t, const struct clp_event_member *m)
{
    t->known = m && m->count <= CLP_ARRAY_LEN(t->frames);
    if (!t->known)
        return;
    t->member = *m;
    memcpy(t->frames, m->frames, m->count * sizeof(t->frames[0]));
    t->member.frames = t->frames;
    t->thread = *m->thread;
    t->member.thread = &t->thread;
}

static void keep_again(struct trigger *to, const struct trigger *from)
{
    keep(to, from->known ? &from->member : NULL);
}

static void set_text(struct clp_event_member *m, unsigned i, const char *text)
{
    m->texts[i] = text;
    m->text_len[i] = (uint16_t)strlen(text);
}

/* The same stack with a word on top of it. */
static void write_suspension(const struct clp_event_member *m, double ns,
                             const struct clp_events_sink *sink)
{
    static uint64_t frames[CLP_WIRE_FRAMES_MAX];
    struct clp_event_member on_top = *m;
    frames[0] = clp_frame_make(CLP_FRAME_SPECIAL, CLP_SPECIAL_SUSPENSION, 0);
    on_top.count = CLP_MIN(m->count + 1u, CLP_WIRE_FRAMES_MAX);
    memcpy(frames + 1, m->frames, (on_top.count - 1u) * sizeof(frames[0]));
    on_top.frames = frames;
    clp_event_member_write(&on_top, CLP_SAMPLE_GC, 0, ns, sink);
}

static void write_collection(const struct collection *c, const struct trigger *t, double count,
                             struct pause pause, const struct clp_events_sink *sink)
{
    uint64_t frame = clp_frame_make(CLP_FRAME_SPECIAL, CLP_SPECIAL_NO_EVENT_STACK, 0);
    struct clp_event_member m = t->member;
    if (!t->known) {
        m.thread = clp_threads_process();
        m.frames = &frame;
        m.count = 1;
        m.flags = CLP_SAMPLE_NO_STACK;
    }
    m.time_ns = c->time_ns;
    m.number = c->generation;
    set_text(&m, 0, c->reason < CLP_ARRAY_LEN(reasons) ? reasons[c->reason] : "");
    set_text(&m, 1, c->type < CLP_ARRAY_LEN(types) ? types[c->type] : "");
    if (pause.suspension_ns > 0)
        write_suspension(&m, pause.suspension_ns, sink);
    clp_event_member_write(&m, CLP_SAMPLE_GC, count, pause.ns - pause.suspension_ns, sink);
    if (count > 0)
        G.totals.collections[CLP_MIN(c->generation, GENERATIONS - 1)]++;
    G.totals.gc_pause_ns += (uint64_t)pause.ns;
    G.totals.gc_pause_of_ns[CLP_MIN(c->generation, GENERATIONS - 1)] += (uint64_t)pause.ns;
    G.totals.gc_suspension_ns += (uint64_t)pause.suspension_ns;
    G.totals.gc_pauses += pause.ns > 0;
}

/* A second session that asks for collections tells each of them twice. */
static void begin(const struct clp_event *e)
{
    uint32_t number = (uint32_t)e->number;
    clp_event_live_gc_begins(number, (uint32_t)(e->number >> 32),
                             (uint32_t)(e->number2 >> 32) == TYPE_BACKGROUND);
    if (number == G.last_number || G.count == CLP_ARRAY_LEN(G.now))
        return;
    struct collection *c = &G.now[G.count++];
    *c = (struct collection){.known = true,
                             .number = number,
                             .generation = (uint32_t)(e->number >> 32),
                             .reason = (uint32_t)e->number2,
                             .type = (uint32_t)(e->number2 >> 32),
                             .time_ns = e->time_ns};
    G.last_number = number;
    if (c->type == TYPE_BACKGROUND) {
        G.background = *c;
        keep_again(&G.background_trigger, &G.trigger);
    }
}

static struct pause pause_until(uint64_t now_ns)
{
    struct pause p = {0};
    if (!G.suspend_ns || now_ns <= G.suspend_ns)
        return p;
    p.ns = (double)(now_ns - G.suspend_ns);
    if (G.suspended_ns > G.suspend_ns && G.suspended_ns <= now_ns)
        p.suspension_ns = (double)(G.suspended_ns - G.suspend_ns);
    return p;
}

/* The last one that began is what the pause was for; before a background collection comes a young
 * one in the same pause. */
static void restart(const struct clp_event *e, const struct clp_events_sink *sink)
{
    const struct pause pause = pause_until(e->time_ns), none = {0};
    for (unsigned i = 0; i < G.count; i++)
        write_collection(&G.now[i], &G.trigger, 1, i + 1 == G.count ? pause : none, sink);
    if (G.count == 0 && pause.ns > 0 && G.background.known)
        write_collection(&G.background, &G.background_trigger, 0, pause, sink);
    if (G.count)
        G.trigger.known = false;
    G.count = 0;
    G.suspend_ns = G.suspended_ns = 0;
}

void clp_event_gc_take(struct clp_event *e, uint64_t pass, const struct clp_events_sink *sink)
{
    switch (e->type) {
    case CLP_EVENT_GC_TRIGGER:
        keep(&G.trigger, clp_event_member_make(e, pass, sink));
        break;
    case CLP_EVENT_GC_SUSPEND:
        if (!G.suspend_ns && (e->number == SUSPEND_FOR_GC || e->number == SUSPEND_FOR_GC_PREP))
            G.suspend_ns = e->time_ns;
        break;
    case CLP_EVENT_GC_SUSPENDED:
        if (!G.suspended_ns)
            G.suspended_ns = G.suspend_ns ? e->time_ns : 0;
        break;
    case CLP_EVENT_GC_START:
        begin(e);
        break;
    case CLP_EVENT_GC_END:
        clp_event_live_gc_ends((uint32_t)e->number);
        if (G.background.known && (uint32_t)e->number == G.background.number)
            G.background.known = false;
        break;
    default:
        restart(e, sink);
    }
}

void clp_event_gc_totals(struct clp_event_totals *ret)
{
    memcpy(ret->collections, G.totals.collections, sizeof(ret->collections));
    ret->gc_pause_ns = G.totals.gc_pause_ns;
    ret->gc_suspension_ns = G.totals.gc_suspension_ns;
    ret->gc_pauses = G.totals.gc_pauses;
    memcpy(ret->gc_pause_of_ns, G.totals.gc_pause_of_ns, sizeof(ret->gc_pause_of_ns));
    for (size_t i = 0; i < CLP_EVENT_HEAP_PARTS; i++)
        ret->heap_bytes[i] = atomic_load_explicit(&heap_bytes[i], memory_order_relaxed);
}

void clp_event_gc_forget(void)
{
    for (size_t i = 0; i < CLP_EVENT_HEAP_PARTS; i++)
        atomic_store_explicit(&heap_bytes[i], 0, memory_order_relaxed);
    G.trigger.known = G.background.known = false;
    G.suspend_ns = G.suspended_ns = 0;
    G.count = 0;
}
