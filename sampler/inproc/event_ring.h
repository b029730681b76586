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

/* One event. `capture` is the first thing behind it if has_stack. */
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
    uint32_t stratum, epoch;
    uint16_t text_len[2];
    uint16_t texts[2][CLP_EVENT_TEXT_UNITS];
};

/* Maps the ring; idempotent. 0 or -ENOMEM. Loop thread. */
int clp_event_ring_init(void) CLP_MUST_USE;
/* Room for an event with `stack_bytes` of stack (0: without one), or NULL when full (counted). The
 * last quarter is for `urgent` ones, for which no other can stand. Everything but state, bytes and
 * has_stack is undefined. */
struct clp_event *clp_event_reserve(bool has_stack, uint64_t stack_bytes, bool urgent);
/* True once whenever the ring has become half full since it was last read: time to wake the loop.
 */
bool clp_event_ring_presses(void);
void clp_event_commit(struct clp_event *e);
static inline struct clp_capture *clp_event_capture(struct clp_event *e)
{
    return (struct clp_capture *)(void *)(e + 1);
}

/* The oldest complete event, or NULL; valid until released. Loop thread. */
struct clp_event *clp_event_peek(void);
void clp_event_release(struct clp_event *e);

uint64_t clp_event_ring_lost(void);
size_t clp_event_ring_bytes(void);

#endif
