#include "sampler/inproc/event_names.h"

#include "sampler/inproc/events.h"

#include <string.h>

/* A name is the writer's until it is READY, and the loop's to take away from then on: so neither a
 * writer that gets no time nor a reader ever sees another name's text. */
enum { FREE = 0, WRITING = 1, READY = 2 };

/* Most names are short. Taken from the first one on: few pages are touched. */
static uint16_t short_texts[CLP_EVENT_NAMES][CLP_EVENT_NAME_SHORT_UNITS];
static uint16_t long_texts[CLP_EVENT_NAMES_LONG][CLP_EVENT_TEXT_UNITS];
static struct clp_event_name names[CLP_EVENT_NAMES + CLP_EVENT_NAMES_LONG];

static struct shelf {
    const uint32_t first, count;
    uint16_t *const texts;
    const uint32_t units;
    _Atomic uint32_t used; /* so many were taken at some time */
    _Atomic bool full;     /* one found no place since the last sweep */
} shelves[] = {
    {0, CLP_EVENT_NAMES, short_texts[0], CLP_EVENT_NAME_SHORT_UNITS, 0, false},
    {CLP_EVENT_NAMES, CLP_EVENT_NAMES_LONG, long_texts[0], CLP_EVENT_TEXT_UNITS, 0, false},
};

static struct clp_event_name *take_from(struct shelf *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        struct clp_event_name *n = &names[s->first + i];
        uint32_t was = atomic_load_explicit(&n->state, memory_order_relaxed);
        if (was != FREE || !atomic_compare_exchange_strong(&n->state, &was, WRITING))
            continue;
        for (uint32_t used = atomic_load(&s->used);
             used <= i && !atomic_compare_exchange_weak(&s->used, &used, i + 1);)
            continue;
        n->text = s->texts + i * s->units;
        return n;
    }
    atomic_store_explicit(&s->full, true, memory_order_relaxed);
    return NULL;
}

static bool is_of(uint32_t number, uint64_t key)
{
    const struct clp_event_name *n = &names[number - 1];
    return atomic_load_explicit(&n->state, memory_order_acquire) == READY &&
           atomic_load_explicit(&n->key, memory_order_relaxed) == key;
}

void clp_event_name_keep(struct clp_event_named of, uint64_t key,
                         const struct clp_event_words *text, uint16_t detail)
{
    uint32_t known = atomic_load_explicit(of.name, memory_order_relaxed);
    struct shelf *s = &shelves[text->units > CLP_EVENT_NAME_SHORT_UNITS];
    if ((known && is_of(known, key)) || atomic_load_explicit(&s->full, memory_order_relaxed))
        return;
    struct clp_event_name *n = take_from(s);
    if (!n)
        return;
    n->units = (uint16_t)CLP_MIN(text->units, (size_t)CLP_EVENT_TEXT_UNITS);
    memcpy(n->text, text->utf16, n->units * sizeof(uint16_t));
    n->detail = detail;
    atomic_store_explicit(&n->key, key, memory_order_relaxed);
    n->of = of;
    n->unused = false;
    atomic_store_explicit(&n->state, READY, memory_order_release);
    atomic_store_explicit(of.name, (uint32_t)(n - names) + 1, memory_order_release);
}

const struct clp_event_name *clp_event_name_find(const _Atomic uint32_t *name, uint64_t key)
{
    uint32_t known = atomic_load_explicit(name, memory_order_acquire);
    return known && key && is_of(known, key) ? &names[known - 1] : NULL;
}

static bool in_use(const struct clp_event_name *n)
{
    return atomic_load(n->of.key) == atomic_load(&n->key) &&
           atomic_load(n->of.name) == n - names + 1;
}

/* In the second sweep of that kind: its writer may be about to make it known. */
static void sweep(struct clp_event_name *n)
{
    if (atomic_load_explicit(&n->state, memory_order_acquire) != READY)
        return;
    bool unused = !in_use(n);
    if (unused && n->unused)
        atomic_store_explicit(&n->state, FREE, memory_order_release);
    n->unused = unused;
}

void clp_event_names_sweep(void)
{
    for (size_t s = 0; s < CLP_ARRAY_LEN(shelves); s++) {
        for (uint32_t i = 0; i < atomic_load(&shelves[s].used); i++)
            sweep(&names[shelves[s].first + i]);
        atomic_store_explicit(&shelves[s].full, false, memory_order_relaxed);
    }
}

size_t clp_event_names_bytes(void)
{
    size_t sum = 0;
    for (size_t s = 0; s < CLP_ARRAY_LEN(shelves); s++)
        sum += atomic_load(&shelves[s].used) *
               (sizeof(struct clp_event_name) + shelves[s].units * sizeof(uint16_t));
    return sum;
}
