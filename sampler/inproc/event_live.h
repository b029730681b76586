/* The live heap: which sampled objects were still reachable when a collection last looked.
 *
 * An allocation that is kept with its stack also gets a weak handle, in the callback in which the
 * runtime tells of it: only there is its address its own. From then on the object is never read,
 * and the handle only tested for null, which the collector makes it when the object becomes
 * unreachable. live_table.h says which are kept and what each stands for.
 *
 * What is told is what was reachable at the last collection of its generation: an object that no
 * collection has looked at yet is not told of. Which generation it is in follows from the
 * collections that it lived through. */
#ifndef CLP_SAMPLER_INPROC_EVENT_LIVE_H
#define CLP_SAMPLER_INPROC_EVENT_LIVE_H

#include "sampler/inproc/event_member.h"

/* Handles at a time, those in the event ring included. */
#define CLP_LIVE_HANDLES_MAX 10000u

/* Generations as the runtime numbers them. */
enum { CLP_LIVE_GENERATION_LARGE = 3, CLP_LIVE_GENERATION_PINNED = 4 };

/* Callback in which the object is told of: a handle for it, or 0: not wanted, or not to be had. */
uint64_t clp_event_live_hold(uint64_t object);

/* ---- loop thread ---- */

/* Are they wanted from now on? Without `info` it stays as it is. */
void clp_event_live_want(bool wanted);
/* No handle is left that could be given back, and none is being made. */
bool clp_event_live_settled(void);
/* An allocation with a handle (0: none), kept as `m`, or as nothing where that is NULL: the handle
 * is ours either way. */
void clp_event_live_take(uint64_t handle, const struct clp_event *e,
                         const struct clp_event_member *m);
/* A collection begins; is done. */
void clp_event_live_gc_begins(uint32_t number, uint32_t generation, bool background);
void clp_event_live_gc_ends(uint32_t number);
/* As clp_live_table_epoch. */
void clp_event_live_epoch(double each);
/* Tests what collections may have freed, at most so often. */
void clp_event_live_round(uint64_t now_ns);
/* Writes what lives, to one reader: a state, not a sum over time. */
void clp_event_live_write(uint64_t now_ns, const struct clp_events_sink *sink);

size_t clp_event_live_bytes(void);

#endif
