/* Where the runtime keeps the return address that it took from a stack.
 *
 * While a garbage collection suspends a thread, the runtime may overwrite one return address on its
 * stack by a stub. The true address and the place it was taken from lie side by side in the Thread
 * object; where, depends on the version and is learnt: a pair only counts when its second word is
 * the very stack slot that holds the stub. Loop thread only. */
#ifndef CLP_SAMPLER_INPROC_HIJACK_H
#define CLP_SAMPLER_INPROC_HIJACK_H

#include "base/core/core.h"
#include "sampler/inproc/capture.h"
#include "sampler/unwind/walk.h"

/* Starts with the place where this version is known to keep the pair. */
void clp_hijack_reset(uint16_t runtime_major);

/* Looks at a finished walk: where it met a hijacked return address that it could not repair,
 * searches the thread's Thread object for the pair, and lets captures copy that place from now on.
 * The walk itself stays as it is: by now the object may speak of a later hijacking of the same
 * slot. */
void clp_hijack_learn(const struct clp_thread_slot *thread, const struct clp_stack_view *stack,
                      uint64_t stub, const struct clp_walk_frame *frames, uint32_t count);

#endif
