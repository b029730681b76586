/* Exceptions: counted by type and place, a few of each kept with their stacks.
 *
 * A throw that the runtime marks as a rethrow (`throw;`) is the same exception once more: it is
 * counted apart and is no sample. Every other throw counts once, handled or not. */
#include "sampler/inproc/event_exception.h"

#include "base/core/random.h"
#include "sampler/inproc/estimator.h"
#include "sampler/inproc/event_names.h"
#include "sampler/inproc/event_path.h"
#include "sampler/inproc/loop.h"

#include <string.h>

#define STRATA 4096u
#define PROBES 24u
#define STRATA_FIRST 512u   /* tried first, so that few places touch few pages */
#define PLACES 24u          /* of a stratum's reservoir, in each epoch */
#define PLACES_LEARNING 96u /* where the place of the throw is not known yet: all, if possible */
#define WAKES 4u
#define FIRST 2u /* members of a stratum that are not lost to others */

enum { FLAG_RETHROWN = 4 };
#define TAIL_BYTES 16u /* behind the message: u64 address, u32 HRESULT, u16 flags, u16 instance */

/* One that an epoch has not seen is given back. Whoever finds one as its own counts in it only
 * while it is: `seen` changes with each owner, and is closed while there is none. */
#define COUNT_BITS 40u
#define COUNT_MASK ((1ull << COUNT_BITS) - 1)
#define CLOSED (1ull << COUNT_BITS)
#define LAST (STRATA - 1) /* takes what finds no place, and is nobody's */

struct stratum {
    _Atomic uint64_t key;  /* 0: free */
    _Atomic uint64_t seen; /* above COUNT_BITS: how often it was closed and opened */
    _Atomic uint32_t name; /* of the type: event_names.h */
};

static struct stratum strata[STRATA];
static _Atomic uint64_t rethrown;
static uint64_t accounted; /* loop: exceptions that were written */

/* Of the loop: what a stratum has in this epoch. */
static struct {
    uint64_t carried; /* seen in epochs that kept nothing */
    struct clp_event_member **places;
    uint32_t count, cap;
} kept[STRATA];

/* ---- callback ---- */

struct thrown {
    const uint8_t *type, *message;
    size_t type_units, message_units;
    uint64_t type_hash;
    uint64_t address; /* of the throw, where the runtime tells (.NET 8) */
    uint16_t flags;
};

/* z type | z message | tail. The message may be long and hold anything: its end is found from the
 * back. */
static bool parse(const struct clp_event_here *h, struct thrown *ret)
{
    uint64_t hash = 0xcbf29ce484222325ull;
    size_t units = 0, most = h->len / 2;
    uint16_t unit = 1;
    if (h->len < TAIL_BYTES + 4)
        return false;
    for (; units < most; units++) {
        memcpy(&unit, h->data + 2 * units, 2);
        if (!unit)
            break;
        hash = (hash ^ unit) * 0x100000001b3ull;
    }
    size_t message = 2 * units + 2, end = h->len - TAIL_BYTES - 2;
    if (unit || message > end)
        return false;
    *ret = (struct thrown){.type = h->data,
                           .type_units = units,
                           .message = h->data + message,
                           .message_units = (end - message) / 2,
                           .type_hash = hash};
    memcpy(&ret->address, h->data + h->len - TAIL_BYTES, 8);
    memcpy(&ret->flags, h->data + h->len - 4, 2);
    return true;
}

static uint64_t mix(uint64_t type, uint64_t site)
{
    uint64_t x = type ^ site * 0x9e3779b97f4a7c15ull;
    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9ull;
    return (x ^ x >> 29) | 1;
}

struct counted {
    uint32_t stratum, owner; /* `owner`: as `seen` has it, above the count */
    uint64_t number;         /* in the epoch, from 1 */
};

static bool is_of(uint32_t at, uint64_t key)
{
    uint64_t now = 0;
    return at == LAST
               ? !key
               : atomic_load(&strata[at].key) == key ||
                     atomic_compare_exchange_strong(&strata[at].key, &now, key) || now == key;
}

/* Counts it there if the stratum is the key's, or free. The type's name comes first: nothing that
 * is counted is ever without it. */
static bool count_at(uint32_t at, uint64_t key, const struct clp_event_words *type,
                     struct counted *ret)
{
    struct clp_event_named named = {&strata[at].key, &strata[at].name};
    uint64_t seen = atomic_load(&strata[at].seen);
    do {
        if (seen & CLOSED || !is_of(at, key))
            return false;
        if (at != LAST)
            clp_event_name_keep(named, key, type, 0);
    } while (!atomic_compare_exchange_weak(&strata[at].seen, &seen, seen + 1));
    *ret = (struct counted){at, (uint32_t)(seen >> COUNT_BITS), (seen & COUNT_MASK) + 1};
    return true;
}

static struct counted count(uint64_t key, const struct clp_event_words *type)
{
    uint32_t hash = (uint32_t)(key >> 20);
    struct counted c = {0};
    for (uint32_t i = 0; i < PROBES; i++)
        if (count_at((hash + i) % STRATA_FIRST, key, type, &c))
            return c;
    for (uint32_t i = 0; i < PROBES; i++)
        if (count_at(STRATA_FIRST + (hash + i) % (STRATA - STRATA_FIRST), key, type, &c))
            return c;
    (void)count_at(LAST, 0, type, &c);
    return c;
}

/* Where it was thrown; 0: not known. Only on the thread's own stack is it known what may be read.
 */
static uint64_t place_of(const struct clp_event_here *h, const struct thrown *x)
{
    struct clp_event_thread *t = h->thread;
    if (x->address)
        return x->address;
    if (h->base < t->stack_low || h->base >= t->stack_high)
        return 0;
    return clp_event_path_find(h->base, t->stack_high, &t->path_hint);
}

static void keep(const struct clp_event_here *h, const struct thrown *x, const struct counted *c,
                 bool learning)
{
    struct clp_event_here here = *h;
    here.urgent = c->number <= FIRST;
    const struct clp_event_words texts[] = {{x->type, x->type_units},
                                            {x->message, x->message_units}};
    struct clp_event *e = clp_event_take(&here, CLP_EVENT_EXCEPTION, true, texts);
    if (!e)
        return;
    e->stratum = c->stratum;
    e->epoch = c->owner;
    e->number2 = learning;
    clp_event_commit(e);
}

void clp_event_exception(const struct clp_event_here *h)
{
    struct thrown x;
    uint64_t site = 0;
    if (!parse(h, &x))
        return;
    if (x.flags & FLAG_RETHROWN) {
        atomic_fetch_add_explicit(&rethrown, 1, memory_order_relaxed);
        return;
    }
    if (h->thread)
        site = place_of(h, &x);
    const struct clp_event_words type = {x.type, x.type_units};
    struct counted c = count(mix(x.type_hash, site), &type);
    uint32_t cap = site ? PLACES : PLACES_LEARNING;
    if (h->thread && !clp_reservoir_takes(c.number, cap, clp_event_random(h->thread)))
        return;
    keep(h, &x, &c, !site);
    if (!site && c.number <= WAKES)
        clp_loop_wake(); /* the sooner the way is known, the fewer are told apart by chance */
}

/* ---- loop ---- */

static uint64_t random_state = 0x2545f4914f6cdd1dull;

void clp_event_exception_take(struct clp_event *e, uint64_t pass,
                              const struct clp_events_sink *sink)
{
    uint32_t at = e->stratum % STRATA;
    if (atomic_load(&strata[at].seen) >> COUNT_BITS != e->epoch)
        return; /* so late that it was written without its stack, and the stratum given away */
    if (!kept[at].places) {
        kept[at].cap = e->number2 ? PLACES_LEARNING : PLACES;
        kept[at].places = clp_event_members_alloc(kept[at].cap * sizeof(*kept[at].places));
    }
    struct clp_event_member *m = clp_event_member_make(e, pass, sink);
    if (!m || !kept[at].places)
        return;
    uint32_t place =
        clp_reservoir_place(kept[at].count, kept[at].cap, clp_random_unit(&random_state));
    kept[at].places[place] = m;
    kept[at].count = CLP_MAX(kept[at].count, place + 1);
}

/* Whole numbers that add up to n; who gets one more is left to chance. */
static void share(uint32_t at, uint64_t n, const struct clp_events_sink *sink)
{
    uint64_t count = kept[at].count,
             first = (uint64_t)(clp_random_unit(&random_state) * (double)count), given = 0;
    for (uint64_t i = 0; n && i < count; i++) {
        const struct clp_event_member *m = kept[at].places[(first + i) % count];
        uint64_t up_to = n / count * (i + 1) + n % count * (i + 1) / count;
        if (up_to > given)
            clp_event_member_write(m, CLP_SAMPLE_EXCEPTION, (double)(up_to - given), 0, sink);
        given = up_to;
    }
}

static uint64_t take_seen(uint32_t at)
{
    uint64_t seen = atomic_load(&strata[at].seen);
    while (!atomic_compare_exchange_weak(&strata[at].seen, &seen, seen & ~COUNT_MASK))
        continue;
    return seen & COUNT_MASK;
}

/* Unless somebody counts in it meanwhile. */
static void give_back(uint32_t at)
{
    uint64_t seen = atomic_load(&strata[at].seen);
    if (!atomic_load_explicit(&strata[at].key, memory_order_relaxed) || seen & COUNT_MASK ||
        !atomic_compare_exchange_strong(&strata[at].seen, &seen, seen + CLOSED))
        return;
    atomic_store(&strata[at].key, 0);
    atomic_store(&strata[at].seen, seen + 2 * CLOSED);
}

/* Of which no stack was kept: its type is known still. */
static void write_unsampled(uint32_t at, uint64_t n, uint64_t now_ns,
                            const struct clp_events_sink *sink)
{
    const struct clp_event_name *type =
        clp_event_name_find(&strata[at].name, atomic_load(&strata[at].key));
    clp_event_write_unsampled(CLP_SAMPLE_EXCEPTION, type, (double)n, 0, now_ns, sink);
}

/* One stratum's total, shared among those that were kept. */
static void write_stratum(uint32_t at, bool flush, uint64_t now_ns,
                          const struct clp_events_sink *sink)
{
    uint64_t n = take_seen(at) + kept[at].carried;
    kept[at].carried = 0;
    accounted += kept[at].count || flush ? n : 0;
    if (kept[at].count == 0 && !flush)
        kept[at].carried = n; /* its stack is still on its way, or the next one stands for it */
    else if (kept[at].count == 0 && n)
        write_unsampled(at, n, now_ns, sink);
    share(at, n, sink);
    kept[at].places = NULL;
    kept[at].count = 0;
}

void clp_event_exception_settle(uint64_t now_ns, bool flush, const struct clp_events_sink *sink)
{
    for (uint32_t i = 0; i < STRATA; i++)
        if (kept[i].count || kept[i].carried ||
            atomic_load_explicit(&strata[i].seen, memory_order_relaxed) & COUNT_MASK)
            write_stratum(i, flush, now_ns, sink);
        else
            give_back(i);
}

void clp_event_exception_totals(struct clp_event_totals *ret)
{
    ret->exceptions = accounted;
    ret->exceptions_rethrown = atomic_load(&rethrown);
}
