#include "sampler/inproc/event_live.h"

#include "base/core/arena.h"
#include "base/core/text.h"
#include "sampler/inproc/clock.h"
#include "sampler/inproc/live_table.h"
#include "sampler/inproc/live_traces.h"
#include "sampler/inproc/runtime.h"

#include <string.h>

#define HANDLE_WEAK 1u  /* COR_PRF_HANDLE_TYPE_WEAK: null as soon as it is unreachable */
#define IN_FLIGHT 1024u /* handles that may lie in the event ring */
#define ENTRIES_MAX (CLP_LIVE_HANDLES_MAX - IN_FLIGHT)
#define TEST_EVERY_NS (250 * CLP_NSEC_PER_MSEC)
#define GROUPS_MAX 16384u /* a power of two, more than ENTRIES_MAX */

struct collection {
    uint32_t number, generation;
    uint64_t order; /* in which they began, from 1; 0: none */
    bool background;
};

static struct {
    _Atomic bool wanted;
    _Atomic uint32_t holders; /* callbacks that are making a handle */
    _Atomic uint64_t made, destroyed;
    /* loop */
    struct clp_live_table table;
    uint32_t most;                          /* entries, ever: the others were never touched */
    struct collection blocking, background; /* under way; the first may come amid the second */
    uint64_t begun;                         /* collections */
    uint32_t last_number;
    /* The latest one that is done, by its order: of any generation, of 1 or 2, of 2. The first two
     * move what they find; a background one moves nothing. */
    uint64_t done_any, done_1, done_2;
    bool untested; /* a collection was done since the last test */
    uint64_t tested_ns;
    bool failed; /* no memory */
} L;

/* ---- callback ---- */

uint64_t clp_event_live_hold(uint64_t object)
{
    uint64_t handle = 0;
    if (!atomic_load_explicit(&L.wanted, memory_order_relaxed))
        return 0;
    atomic_fetch_add(&L.holders, 1);
    struct clr_info *info = clp_runtime_info();
    uint64_t now = atomic_load(&L.made) - atomic_load(&L.destroyed);
    if (atomic_load(&L.wanted) && info && object && now < CLP_LIVE_HANDLES_MAX &&
        CLR_OK(info->slots->create_handle(info, object, HANDLE_WEAK, &handle)) && handle)
        atomic_fetch_add(&L.made, 1);
    atomic_fetch_sub(&L.holders, 1);
    return handle;
}

/* ---- handles; loop ---- */

static void destroy(uint64_t handle)
{
    struct clr_info *info = clp_runtime_info();
    if (!handle || !info)
        return;
    (void)info->slots->destroy_handle(info, handle);
    atomic_fetch_add(&L.destroyed, 1);
}

static void leave(void *user, const struct clp_live_entry *e)
{
    (void)user;
    destroy(e->handle);
    clp_live_traces_drop(e->trace);
}

/* Whatever the runtime does not answer about is not known to be dead. */
static bool is_dead(void *user, const struct clp_live_entry *e)
{
    struct clr_info *info = user;
    uint64_t object = 0;
    return CLR_OK(info->slots->get_object_from_handle(info, e->handle, &object)) && !object;
}

static bool any_is_dead(void *user, const struct clp_live_entry *e)
{
    (void)user;
    (void)e;
    return true;
}

static void test(uint64_t now_ns)
{
    struct clr_info *info = clp_runtime_info();
    if (!L.untested || !info)
        return;
    L.untested = false;
    L.tested_ns = now_ns;
    L.table.user = info;
    (void)clp_live_table_sweep(&L.table, is_dead);
}

void clp_event_live_round(uint64_t now_ns)
{
    if (now_ns >= L.tested_ns + TEST_EVERY_NS)
        test(now_ns);
}

/* ---- wanted or not ---- */

static bool begin(void)
{
    if (L.table.entries)
        return true;
    L.failed = true;
    if (clp_live_traces_init() < 0)
        return false;
    L.table.entries = clp_pages_alloc(ENTRIES_MAX * sizeof(struct clp_live_entry));
    if (!L.table.entries)
        return false;
    L.table.max = ENTRIES_MAX;
    L.table.random = clp_clock_monotonic_ns() | 1;
    L.table.leave = leave;
    L.failed = false;
    return true;
}

void clp_event_live_want(bool wanted)
{
    if (wanted && !L.failed && begin()) {
        if (!atomic_exchange(&L.wanted, true))
            L.blocking.order = L.background.order = 0; /* their ends may have gone unseen */
        return;
    }
    atomic_store(&L.wanted, false);
    if (!L.table.count || !clp_runtime_info())
        return;
    (void)clp_live_table_sweep(&L.table, any_is_dead);
    L.table.threshold = 0;
}

bool clp_event_live_settled(void)
{
    if (!clp_runtime_info())
        return true;
    return atomic_load(&L.holders) == 0 && atomic_load(&L.made) == atomic_load(&L.destroyed);
}

/* ---- collections ---- */

static void is_done(const struct collection *c)
{
    if (!c->background)
        L.done_any = CLP_MAX(L.done_any, c->order);
    if (!c->background && c->generation >= 1)
        L.done_1 = CLP_MAX(L.done_1, c->order);
    if (c->generation >= 2)
        L.done_2 = CLP_MAX(L.done_2, c->order);
    L.untested = true;
}

static void end(struct collection *c)
{
    if (c->order)
        is_done(c);
    c->order = 0;
}

/* A second session that asks for collections tells each of them twice. The end of one may have
 * found the ring full: but it is over when the next one of its kind begins, and a background one
 * also when all of the heap is collected again. */
void clp_event_live_gc_begins(uint32_t number, uint32_t generation, bool background)
{
    if (number == L.last_number)
        return;
    L.last_number = number;
    end(background ? &L.background : &L.blocking);
    if (!background && generation >= 2)
        end(&L.background);
    *(background ? &L.background : &L.blocking) =
        (struct collection){number, generation, ++L.begun, background};
}

void clp_event_live_gc_ends(uint32_t number)
{
    if (L.blocking.number == number)
        end(&L.blocking);
    if (L.background.number == number)
        end(&L.background);
}

/* The generation that an object is in for having lived through what came after it; -1: no
 * collection of its generation has looked at it. A small one moves on with each collection that
 * looks at it. */
static int generation_of(const struct clp_live_entry *e)
{
    if (e->heap != CLP_EVENT_HEAP_USUAL && L.done_2 <= e->born)
        return -1;
    if (e->heap == CLP_EVENT_HEAP_LARGE)
        return CLP_LIVE_GENERATION_LARGE;
    if (e->heap == CLP_EVENT_HEAP_PINNED)
        return CLP_LIVE_GENERATION_PINNED;
    if (L.done_any <= e->born)
        return -1;
    return L.done_1 > e->born + 1 ? 2 : 1;
}

/* ---- entries ---- */

/* What is dead goes first; then chance decides. */
static void make_room(uint32_t most)
{
    test(clp_clock_monotonic_ns());
    if (L.table.count > most)
        clp_live_table_thin(&L.table, most);
}

static uint32_t take_trace(const struct clp_event_member *m)
{
    for (;;) {
        uint32_t trace =
            clp_live_traces_take(m->frames, m->count, m->flags, m->texts[0], m->text_len[0]);
        if (trace != CLP_LIVE_TRACE_NONE || L.table.count < 2)
            return trace;
        make_room(L.table.count / 2);
    }
}

void clp_event_live_take(uint64_t handle, const struct clp_event *of,
                         const struct clp_event_member *m)
{
    if (!handle)
        return;
    uint32_t trace = CLP_LIVE_TRACE_NONE;
    if (m && atomic_load(&L.wanted)) {
        if (L.table.count == L.table.max)
            make_room(L.table.max / 4 * 3);
        trace = take_trace(m);
    }
    if (trace == CLP_LIVE_TRACE_NONE) {
        destroy(handle);
        return;
    }
    /* The member's values are over its chance already. */
    double chance = (double)of->chance;
    struct clp_live_entry e = {.handle = handle,
                               .objects = m->value * chance,
                               .bytes = m->value2 * chance,
                               .chance = chance,
                               .time_ns = m->time_ns,
                               .born = L.begun,
                               .trace = trace,
                               .heap = (uint8_t)of->number2};
    clp_live_table_add(&L.table, &e);
    L.most = CLP_MAX(L.most, L.table.count);
}

void clp_event_live_epoch(double each)
{
    if (L.table.entries)
        clp_live_table_epoch(&L.table, each);
}

/* ---- what lives ---- */

static const struct age {
    uint64_t below_ns;
    const char *text;
} ages[] = {
    {10 * CLP_NSEC_PER_SEC, "under 10 s"},          {60 * CLP_NSEC_PER_SEC, "10 s to 1 min"},
    {600 * CLP_NSEC_PER_SEC, "1 to 10 min"},        {3600 * CLP_NSEC_PER_SEC, "10 min to 1 h"},
    {24 * 3600 * CLP_NSEC_PER_SEC, "1 h to 1 day"}, {UINT64_MAX, "over 1 day"},
};

static uint8_t age_of(const struct clp_live_entry *e, uint64_t now_ns)
{
    uint64_t age = now_ns > e->time_ns ? now_ns - e->time_ns : 0;
    uint8_t i = 0;
    while (age >= ages[i].below_ns && i + 1u < CLP_ARRAY_LEN(ages))
        i++;
    return i;
}

/* Entries that look alike: one event. Those that no collection has looked at have no value yet:
 * what is told of them keeps the names of their stacks, whose code may have unloaded. */
struct group {
    double objects, bytes;
    uint32_t trace_and_one; /* 0: free */
    uint8_t generation, age;
};

static struct group *group_of(struct group *all, uint32_t trace, uint8_t generation, uint8_t age)
{
    uint64_t key = (uint64_t)trace << 16 | (uint64_t)generation << 8 | age;
    uint64_t i = key * 0x9e3779b97f4a7c15ull >> 40;
    struct group *g;
    for (; (g = &all[i & (GROUPS_MAX - 1)])->trace_and_one; i++)
        if (g->trace_and_one == trace + 1 && g->generation == generation && g->age == age)
            return g;
    *g = (struct group){.trace_and_one = trace + 1, .generation = generation, .age = age};
    return g;
}

static void write_group(const struct group *g, uint64_t now_ns, const struct clp_events_sink *sink)
{
    const struct clp_live_trace *t = clp_live_traces_at(g->trace_and_one - 1);
    struct clp_feed_event out = {
        .thread = clp_threads_process(),
        .time_ns = now_ns,
        .number = g->generation,
        .value = g->objects,
        .value2 = g->bytes,
        .kind = CLP_SAMPLE_LIVE,
        .flags = t->flags,
        .count = t->count,
        .frames = t->frames,
        .texts = {clp_live_trace_text(t), ages[g->age].text},
        .text_len = {t->text_len, (uint16_t)strlen(ages[g->age].text)},
    };
    sink->event(sink->user, &out);
}

void clp_event_live_write(uint64_t now_ns, const struct clp_events_sink *sink)
{
    size_t bytes = GROUPS_MAX * sizeof(struct group);
    test(now_ns);
    struct group *all = L.table.count ? clp_pages_alloc(bytes) : NULL;
    if (!all)
        return;
    for (uint32_t i = 0; i < L.table.count; i++) {
        const struct clp_live_entry *e = &L.table.entries[i];
        int generation = generation_of(e);
        struct group *g = group_of(all, e->trace, (uint8_t)generation, age_of(e, now_ns));
        if (generation < 0)
            continue;
        g->objects += e->objects / e->chance;
        g->bytes += e->bytes / e->chance;
    }
    for (uint32_t i = 0; i < GROUPS_MAX; i++)
        if (all[i].trace_and_one)
            write_group(&all[i], now_ns, sink);
    clp_pages_free(all, bytes);
}

size_t clp_event_live_bytes(void)
{
    return L.most * sizeof(struct clp_live_entry) + clp_live_traces_bytes();
}
