/* From captures to samples: drains the capture ring, walks the stacks, names nothing.
 * Loop thread only. */
#ifndef CLP_SAMPLER_INPROC_COLLECT_H
#define CLP_SAMPLER_INPROC_COLLECT_H

#include "base/core/core.h"
#include "sampler/inproc/capture.h"
#include "sampler/inproc/feed.h"
#include "sampler/unwind/walk.h"

#include <stdbool.h>

/* Where samples go: every reader's feed. */
struct clp_collect_sink {
    void *user;
    void (*stack)(void *user, const struct clp_feed_sample *s);
    void (*count)(void *user, enum clp_counter counter); /* a capture that lost its stack */
};

/* Forgets what was learnt about the runtime's hijacking; `runtime_major` chooses where the Thread
 * object's hijack pair is looked for first (only believed when it fits the stack). */
void clp_collect_reset(uint16_t runtime_major);

/* Takes up to `max` captures. How many it took; fewer than `max` = the ring is empty. `pass`
 * numbers the rounds (clp_images_find). */
uint32_t clp_collect_drain(uint64_t pass, uint32_t max, const struct clp_collect_sink *sink);
/* The walk over one capture: frames leaf first, valid until the next one. */
const struct clp_walk_frame *clp_collect_walk(const struct clp_capture *c, uint64_t pass,
                                              struct clp_walk_result *ret);
/* Frames as the wire has them, with a word at the root where the walk did not come to it: at most
 * count + 1. How many. */
uint16_t clp_collect_encode(const struct clp_walk_frame *frames, uint32_t count,
                            const struct clp_walk_result *w, uint64_t *ret);
/* CLP_SAMPLE_* of a walk. */
uint16_t clp_collect_flags(const struct clp_walk_result *w);
/* The same walk over any stack, into a sample's frames and flags; valid until the next walk. */
struct clp_collect_stack {
    const uint64_t *frames; /* as the wire has them */
    uint16_t count, flags;  /* CLP_SAMPLE_* */
    bool hijacked;
};
void clp_collect_stack(const struct clp_walk_input *in, const struct clp_thread_slot *slot,
                       uint64_t pass, struct clp_collect_stack *ret);
/* The runtime's hijack stub where a walk has met it, else 0. */
uint64_t clp_collect_hijack_stub(void);

/* Throws away all that is captured: sampling has ended. */
void clp_collect_discard(void);

#endif
