/* Where an exception was thrown, in some tens of nanoseconds: a walk that is remembered.
 *
 * Between our callback and the method that throws lie frames of the runtime. Each has a fixed size,
 * and a return address says whose it is; so if, at the places where an earlier walk found return
 * addresses, the same ones lie now, the frames are the same, and the one behind them is where it
 * was. A path holds these places, relative to the callback's frame.  The loop learns paths from
 * walks that are exact; callbacks compare. */
#ifndef CLP_SAMPLER_INPROC_EVENT_PATH_H
#define CLP_SAMPLER_INPROC_EVENT_PATH_H

#include "sampler/inproc/event_ring.h"
#include "sampler/unwind/walk.h"

/* The return address into the method behind a known path, or 0. Only reads [base, high) of the
 * calling thread's stack. `hint` remembers which path fitted last. Any thread. */
uint64_t clp_event_path_find(uint64_t base, uint64_t high, uint32_t *hint);

/* frames[0, top) are the runtime's, frames[top] is the method. Learns the path if every step of the
 * walk is confirmed by the copied stack; whether it is one now. Loop thread. */
bool clp_event_path_learn(const struct clp_event *e, const struct clp_capture *c,
                          const struct clp_walk_frame *frames, uint32_t top);
/* Nothing is known any more. No session runs: no callback follows a path. */
void clp_event_path_forget(void);

#endif
