/* From event callbacks to the loop: what happened, with the stack where that was wanted.
 *
 * A ring of its own, so that a burst of events costs the CPU samples nothing. Any number of
 * threads write, none of them ever waits; the loop reads. Not for signal handlers. */
#ifndef CLP_SAMPLER_INPROC_EVENT_RING_H
#define CLP_SAMPLER_INPROC_EVENT_RING_H

#include "base/core/core.h"
#include "sampler/inproc/capture.h"

#include <stdbool.h>

#define CLP_EVENT_RING_BYTES (1u << 20)
#define CLP_EVENT_TEXT_UNITS 256u /* UTF-16 units that are kept of a text */

/* One event. Behind it come its texts, UTF-16, padded to 8, then a capture if has_stack. */
struct clp_event {
    _Atomic uint32_t state; /* the ring's */
    uint32_t bytes;
    uint16_t type; /* enum clp_event_type, events.h */
    uint8_t has_stack;
    uint8_t certain; /* kept with probability 1 */
    int32_t tid;
    uint64_t time_ns; /* CLOCK_MONOTONIC */
    uint64_t base;    /* frame address of the callback's outermost function */
    double value, value2;
    uint64_t number, number2;
    uint32_t stratum, epoch; /* whose member it is */
    uint16_t text_len[2];    /* units */
    float chance;            /* of being kept, where the taker wants to know */
};

/* Maps the ring; idempotent. 0 or -ENOMEM. Loop thread. */
int clp_event_ring_init(void) CLP_MUST_USE;
/* Room for an event with texts of these lengths (at most CLP_EVENT_TEXT_UNITS each; NULL: none) and
 * `stack_bytes` of stack, or NULL when full (counted). The last quarter is for `urgent` ones, for
 * which no other can stand. Everything but state, bytes, has_stack and text_len is undefined. */
struct clp_event *clp_event_reserve(bool has_stack, uint64_t stack_bytes,
                                    const uint16_t text_len[2], bool urgent);
/* How often chances should be halved so that the ring does not fill: 0 up to three eighths of it,
 * then once more with each 3/128. It depends on what came before alone, never on the event at hand.
 * Any thread. */
unsigned clp_event_ring_pressure(void);
/* True once whenever the ring has become a quarter full since it was last read: time to wake the
 * loop, before chances have to fall. */
bool clp_event_ring_presses(void);
void clp_event_commit(struct clp_event *e);
static inline uint16_t *clp_event_text(struct clp_event *e, unsigned i)
{
    return (uint16_t *)(void *)(e + 1) + (i ? e->text_len[0] : 0);
}
static inline size_t clp_event_text_bytes(const uint16_t text_len[2])
{
    return CLP_ALIGN_UP(sizeof(uint16_t) * ((size_t)text_len[0] + text_len[1]), 8);
}
static inline struct clp_capture *clp_event_capture(struct clp_event *e)
{
    return (struct clp_capture *)(void *)((uint8_t *)(e + 1) + clp_event_text_bytes(e->text_len));
}

/* The oldest complete event, or NULL; valid until released. Loop thread. */
struct clp_event *clp_event_peek(void);
void clp_event_release(struct clp_event *e);

uint64_t clp_event_ring_lost(void);
size_t clp_event_ring_bytes(void);

#endif
