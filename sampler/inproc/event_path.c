#include "sampler/inproc/event_path.h"

#include <string.h>

#define PATHS 32u
#define WORDS 48u

struct word {
    uint64_t value;
    uint32_t offset; /* from the callback's frame */
};

struct path {
    _Atomic uint32_t version; /* odd while it is written; 0: never was */
    uint32_t count;
    uint32_t site; /* offset of the return address that is looked for */
    struct word words[WORDS];
};

static struct path paths[PATHS];
static uint32_t next_path;

static uint64_t stack_word(uint64_t address)
{
    uint64_t v;
    memcpy(&v, (const void *)(uintptr_t)address, sizeof(v));
    return v;
}

static uint64_t follow(const struct path *p, uint64_t base, uint64_t high)
{
    uint32_t version = atomic_load_explicit(&p->version, memory_order_acquire);
    uint32_t count = p->count, site = p->site;
    if (!version || version & 1 || count > WORDS || base + site + 8 > high)
        return 0;
    for (uint32_t i = count; i-- > 0;) {
        struct word w = p->words[i];
        if (w.offset > site || stack_word(base + w.offset) != w.value)
            return 0;
    }
    uint64_t found = stack_word(base + site);
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&p->version, memory_order_relaxed) == version ? found : 0;
}

uint64_t clp_event_path_find(uint64_t base, uint64_t high, uint32_t *hint)
{
    uint64_t found = follow(&paths[*hint % PATHS], base, high);
    for (uint32_t i = 0; !found && i < PATHS; i++) {
        found = follow(&paths[i], base, high);
        if (found)
            *hint = i;
    }
    return found;
}

/* The word at a slot of the copied stack; 0 outside. */
static uint64_t copied(const struct clp_capture *c, uint64_t slot)
{
    uint64_t v;
    if (slot < c->rsp || slot - c->rsp + 8 > c->stack_bytes)
        return 0;
    memcpy(&v, c->stack + (slot - c->rsp), sizeof(v));
    return v;
}

/* Each frame's return address must lie where the walk says that it ended, and lead to the next. */
static bool describe(const struct clp_event *e, const struct clp_capture *c,
                     const struct clp_walk_frame *f, uint32_t top, struct path *ret)
{
    ret->count = 0;
    for (uint32_t i = 0; i < top; i++) {
        uint64_t slot = f[i].cfa - 8;
        if (!f[i].cfa || copied(c, slot) != f[i + 1].address + 1)
            return false;
        if (slot < e->base)
            continue; /* our own frames differ between who looks and who copies */
        uint64_t offset = slot - e->base;
        if (offset > UINT16_MAX || ret->count == WORDS)
            return false;
        if (i + 1 == top)
            ret->site = (uint32_t)offset;
        else
            ret->words[ret->count++] =
                (struct word){.offset = (uint32_t)offset, .value = f[i + 1].address + 1};
    }
    return ret->count >= 2;
}

static bool is_known(const struct path *p)
{
    for (uint32_t i = 0; i < PATHS; i++) {
        const struct path *q = &paths[i];
        if (atomic_load(&q->version) && q->count == p->count && q->site == p->site &&
            memcmp(q->words, p->words, p->count * sizeof(p->words[0])) == 0)
            return true;
    }
    return false;
}

bool clp_event_path_learn(const struct clp_event *e, const struct clp_capture *c,
                          const struct clp_walk_frame *frames, uint32_t top)
{
    struct path made;
    memset(&made, 0, sizeof(made));
    if (top < 2 || !describe(e, c, frames, top, &made))
        return false;
    if (is_known(&made))
        return true;
    struct path *p = &paths[next_path++ % PATHS];
    uint32_t version = atomic_load(&p->version);
    atomic_store(&p->version, version + 1);
    atomic_thread_fence(memory_order_release);
    p->count = made.count;
    p->site = made.site;
    memcpy(p->words, made.words, sizeof(p->words));
    atomic_store_explicit(&p->version, version + 2, memory_order_release);
    return true;
}

void clp_event_path_forget(void)
{
    for (uint32_t i = 0; i < PATHS; i++)
        atomic_store(&paths[i].version, 0);
}
