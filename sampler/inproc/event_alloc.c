/* Allocations. .NET 10 samples bytes at random (AllocationSampled, 102,400 bytes apart in the
 * mean): an object of size s is met with 1 - exp(-s / 102400), and stands for the inverse of that.
 * Before, AllocationTick tells of each 100 KB with the object that came at that moment: bytes in
 * all are right, how they are split over classes is an estimate without a known error.
 *
 * The object is not initialised yet: nothing of it is read. */
#include "sampler/inproc/event_live.h"
#include "sampler/inproc/event_sized.h"

#include <string.h>

#define MEAN_BYTES 102400.0
#define OBJECT_BYTES_MIN 24u

#define LARGE_BYTES 85000u /* what the runtime takes where nobody has set it otherwise */

struct clp_event_sized clp_event_allocs;
static _Atomic uint32_t large_bytes = LARGE_BYTES;

struct allocation {
    const uint8_t *name;
    size_t name_units;
    uint64_t address;
    enum clp_event_heap heap;
    double objects, bytes;
};

/* The name of a type between `head` bytes before it and `tail` bytes behind its end. */
static bool find_name(const struct clp_event_here *h, size_t head, size_t tail,
                      struct allocation *ret)
{
    if (h->len < head + 2 + tail)
        return false;
    size_t most = (h->len - head - tail) / 2, n = 0;
    const uint8_t *at = h->data + head;
    while (n < most && (at[2 * n] || at[2 * n + 1]))
        n++;
    if (n == most)
        return false;
    ret->name = at;
    ret->name_units = n;
    return true;
}

void clp_event_alloc_large(uint32_t bytes)
{
    atomic_store(&large_bytes, bytes);
}

/* The event does not call every object large that is: arrays of several dimensions are not told. */
static enum clp_event_heap heap_of(uint32_t kind, double size)
{
    if (kind == CLP_EVENT_HEAP_PINNED)
        return CLP_EVENT_HEAP_PINNED;
    return size >= atomic_load_explicit(&large_bytes, memory_order_relaxed) ? CLP_EVENT_HEAP_LARGE
                                                                            : CLP_EVENT_HEAP_USUAL;
}

/* Classes by their names: a method table may be another class's before long. */
static uint64_t class_of(const struct allocation *a)
{
    uint64_t hash = 0xcbf29ce484222325ull + a->heap;
    for (size_t i = 0; i < a->name_units; i++) {
        uint16_t unit;
        memcpy(&unit, a->name + 2 * i, sizeof(unit));
        hash = (hash ^ unit) * 0x100000001b3ull;
    }
    return hash;
}

/* The loop destroys the handle of an entry; without an entry there is none. */
static void offer(const struct clp_event_here *h, const struct allocation *a)
{
    const struct clp_event_words texts[CLP_EVENT_TEXTS] = {{a->name, a->name_units}};
    uint64_t key = class_of(a);
    struct clp_threshold_member m =
        clp_event_sized_offer(&clp_event_allocs, h, key,
                              (uint64_t)(a->objects * CLP_THRESHOLD_COUNT_ONE), (uint64_t)a->bytes);
    clp_event_sized_name(&clp_event_allocs, &m, key, &texts[0], (uint16_t)a->heap);
    if (m.chance <= 0)
        return;
    struct clp_event *e = clp_event_take(h, CLP_EVENT_ALLOC, true, texts);
    if (!e) {
        atomic_fetch_add(&clp_event_allocs.lost, 1);
        return;
    }
    clp_event_sized_mark(e, &m);
    e->value = a->objects / m.chance;
    e->value2 = a->bytes / m.chance;
    e->number2 = a->heap;
    e->number = clp_event_live_hold(a->address);
    clp_event_commit(e);
}

/* u32 kind | u16 instance | u64 type | z name | u64 address | u64 size | u64 offset */
void clp_event_alloc_sampled(const struct clp_event_here *h)
{
    struct allocation a;
    if (!find_name(h, 14, 24, &a))
        return;
    size_t rest = 14 + 2 * (a.name_units + 1);
    double size = (double)clp_event_u64(h, rest + 8);
    a.address = clp_event_u64(h, rest);
    if (size < OBJECT_BYTES_MIN)
        return;
    a.heap = heap_of(clp_event_u32(h, 0), size);
    a.objects = 1.0 / clp_sampled_chance(size, MEAN_BYTES);
    a.bytes = size * a.objects;
    offer(h, &a);
}

/* u32 amount | u32 kind | u16 instance | u64 amount | u64 type | z name | u32 heap | u64 address |
 * u64 size */
void clp_event_alloc_tick(const struct clp_event_here *h)
{
    struct allocation a;
    if (!find_name(h, 26, 20, &a))
        return;
    size_t rest = 26 + 2 * (a.name_units + 1);
    double size = (double)clp_event_u64(h, rest + 12);
    a.address = clp_event_u64(h, rest + 4);
    a.heap = heap_of(clp_event_u32(h, 4), size);
    a.bytes = (double)clp_event_u64(h, 10);
    a.objects = a.bytes / CLP_MAX(size, (double)OBJECT_BYTES_MIN);
    if (a.bytes <= 0 || a.bytes > 1e15)
        return;
    offer(h, &a);
}
