#include "sampler/inproc/event_names.h"

#include "sampler/inproc/events.h"

#include <string.h>

/* A name is the writer's until it is READY, and the loop's to take away from then on: so neither a
 * writer that gets no time nor a reader ever sees another name's text. */
enum { FREE = 0, WRITING = 1, READY = 2 };

static struct clp_event_name names[CLP_EVENT_NAMES]; /* from the first on: few pages are touched */
static _Atomic uint32_t high;                        /* so many were ever used */
static _Atomic uint32_t full;                        /* there was none left since the last sweep */

static struct clp_event_name *take(void)
{
    for (uint32_t i = 0; i < CLP_EVENT_NAMES; i++) {
        uint32_t was = atomic_load_explicit(&names[i].state, memory_order_relaxed);
        if (was != FREE || !atomic_compare_exchange_strong(&names[i].state, &was, WRITING))
            continue;
        for (uint32_t h = atomic_load(&high);
             h <= i && !atomic_compare_exchange_weak(&high, &h, i + 1);)
            continue;
        return &names[i];
    }
    atomic_store_explicit(&full, 1, memory_order_relaxed);
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
    if ((known && is_of(known, key)) || atomic_load_explicit(&full, memory_order_relaxed))
        return;
    struct clp_event_name *n = take();
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
void clp_event_names_sweep(void)
{
    for (uint32_t i = 0; i < atomic_load(&high); i++) {
        struct clp_event_name *n = &names[i];
        if (atomic_load_explicit(&n->state, memory_order_acquire) != READY)
            continue;
        bool unused = !in_use(n);
        if (unused && n->unused)
            atomic_store_explicit(&n->state, FREE, memory_order_release);
        n->unused = unused;
    }
    atomic_store_explicit(&full, 0, memory_order_relaxed);
}

size_t clp_event_names_bytes(void)
{
    return atomic_load(&high) * sizeof(struct clp_event_name);
}
