#include "sampler/inproc/event_ring.h"

#include "base/core/arena.h"

#include <assert.h>
#include <errno.h>
#include <stdalign.h>
#include <string.h>

#define LINE 64u
/* At a thousand kept stacks of 10 KB a second: 25 ms, the time between two rounds of the loop. */
#define PRESSING_BYTES (CLP_EVENT_RING_BYTES / 4)
#define PRESSURE_BYTES (CLP_EVENT_RING_BYTES / 8 * 3)
#define PRESSURE_STEP (CLP_EVENT_RING_BYTES / 128 * 3)

enum { WRITING = 0, COMPLETE = 1, PADDING = 2 };

static struct {
    uint8_t *data; /* NULL before the first init */
    _Atomic uint64_t lost;
    _Atomic uint32_t pressing; /* 1: became a quarter full, 2: and that was told */
    /* Positions count up for ever, as in the capture ring. */
    alignas(64) _Atomic uint64_t head;
    alignas(64) _Atomic uint64_t tail;
} ring;

static_assert(sizeof(struct clp_event) % alignof(struct clp_capture) == 0, "a capture follows");

int clp_event_ring_init(void)
{
    if (!ring.data)
        ring.data = clp_pages_alloc(CLP_EVENT_RING_BYTES);
    return ring.data ? 0 : -ENOMEM;
}

static struct clp_event *at(uint64_t position)
{
    return (struct clp_event *)(void *)(ring.data + position % CLP_EVENT_RING_BYTES);
}

static void press(void)
{
    uint32_t was = 0;
    (void)atomic_compare_exchange_strong(&ring.pressing, &was, 1);
}

bool clp_event_ring_presses(void)
{
    uint32_t was = 1;
    return atomic_load_explicit(&ring.pressing, memory_order_relaxed) == 1 &&
           atomic_compare_exchange_strong(&ring.pressing, &was, 2);
}

static struct clp_event *reserve(uint64_t bytes, uint64_t room)
{
    uint64_t head = atomic_load_explicit(&ring.head, memory_order_relaxed), pad, next;
    do {
        uint64_t offset = head % CLP_EVENT_RING_BYTES;
        pad = offset + bytes > CLP_EVENT_RING_BYTES ? CLP_EVENT_RING_BYTES - offset : 0;
        next = head + pad + bytes;
        int64_t used = (int64_t)(next - atomic_load_explicit(&ring.tail, memory_order_acquire));
        if (used > (int64_t)PRESSING_BYTES)
            press();
        if (used > (int64_t)room)
            return NULL;
    } while (!atomic_compare_exchange_weak_explicit(&ring.head, &head, next, memory_order_acq_rel,
                                                    memory_order_relaxed));
    if (pad) {
        at(head)->bytes = (uint32_t)pad;
        atomic_store_explicit(&at(head)->state, PADDING, memory_order_release);
    }
    return at(head + pad);
}

unsigned clp_event_ring_pressure(void)
{
    uint64_t used = atomic_load_explicit(&ring.head, memory_order_relaxed) -
                    atomic_load_explicit(&ring.tail, memory_order_relaxed);
    if (used <= PRESSURE_BYTES || used > CLP_EVENT_RING_BYTES)
        return 0;
    return (unsigned)((used - PRESSURE_BYTES) / PRESSURE_STEP) + 1;
}

struct clp_event *clp_event_reserve(bool has_stack, uint64_t stack_bytes,
                                    const uint16_t text_len[2], bool urgent)
{
    static const uint16_t none[2];
    const uint16_t *texts = text_len ? text_len : none;
    uint64_t room = urgent ? CLP_EVENT_RING_BYTES : CLP_EVENT_RING_BYTES / 4 * 3;
    uint64_t bytes = sizeof(struct clp_event) + clp_event_text_bytes(texts);
    if (has_stack)
        bytes += sizeof(struct clp_capture) + stack_bytes;
    bytes = CLP_ALIGN_UP(bytes, LINE);
    struct clp_event *e =
        ring.data && bytes <= CLP_EVENT_RING_BYTES / 2 ? reserve(bytes, room) : NULL;
    if (!e) {
        atomic_fetch_add_explicit(&ring.lost, 1, memory_order_relaxed);
        return NULL;
    }
    e->bytes = (uint32_t)bytes;
    e->has_stack = has_stack;
    memcpy(e->text_len, texts, sizeof(e->text_len));
    return e;
}

void clp_event_commit(struct clp_event *e)
{
    atomic_store_explicit(&e->state, COMPLETE, memory_order_release);
}

/* All that can be read is: also where one is being written, which may be the very one that
 * pressed. */
static struct clp_event *nothing(void)
{
    atomic_store_explicit(&ring.pressing, 0, memory_order_relaxed);
    return NULL;
}

struct clp_event *clp_event_peek(void)
{
    for (;;) {
        uint64_t tail = atomic_load_explicit(&ring.tail, memory_order_relaxed);
        if (tail == atomic_load_explicit(&ring.head, memory_order_acquire))
            return nothing();
        struct clp_event *e = at(tail);
        uint32_t state = atomic_load_explicit(&e->state, memory_order_acquire);
        if (state == WRITING)
            return nothing();
        if (state == COMPLETE)
            return e;
        clp_event_release(e);
    }
}

/* Each line may be the start of a later event: its first word has to say "writing" until then. */
void clp_event_release(struct clp_event *e)
{
    uint8_t *line = (uint8_t *)e;
    uint32_t bytes = e->bytes;
    for (uint32_t i = 0; i < bytes; i += LINE)
        atomic_store_explicit((_Atomic uint32_t *)(void *)(line + i), WRITING,
                              memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&ring.tail, memory_order_relaxed);
    atomic_store_explicit(&ring.tail, tail + bytes, memory_order_release);
}

uint64_t clp_event_ring_lost(void)
{
    return atomic_load_explicit(&ring.lost, memory_order_relaxed);
}

size_t clp_event_ring_bytes(void)
{
    return ring.data ? CLP_EVENT_RING_BYTES : 0;
}
