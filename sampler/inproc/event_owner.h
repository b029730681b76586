/* What the owner of a lock does while another thread waits for it.
 *
 * Some waits are watched, as many as the budget allows. The loop looks at the owner as wall time is
 * looked at: from outside, without a signal (wall_shot.h), never in the waiter's callback; where
 * the owner runs just then, its next CPU sample says what it did. So that the instant is any one of
 * the wait, though nobody knows how long that will be, there is one look at a random instant of its
 * first millisecond, and one in each doubling of its length; at each the newer one is kept with the
 * share that its part has of the whole.
 *
 * The owner is who held the lock when the wait began, or whoever is known to have got it since. */
#ifndef CLP_SAMPLER_INPROC_EVENT_OWNER_H
#define CLP_SAMPLER_INPROC_EVENT_OWNER_H

#include "sampler/inproc/event_member.h"

/* Shorter waits get no owner's stack. */
#define CLP_OWNER_WAIT_MIN_NS CLP_NSEC_PER_MSEC
#define CLP_OWNER_FRAMES_MAX 48u /* managed ones, from the leaf on */

/* ---- callback, on the waiter ---- */

/* A wait begins: the number of its watch, or 0. */
uint32_t clp_event_owner_begin(const struct clp_event_here *h, uint64_t lock, uint64_t owner_tid);
/* The thread has got the lock that it waited for: it is the owner for all that still wait. */
void clp_event_owner_took(uint64_t lock, int32_t tid);
/* The wait is over. `told`: an event with the number follows, whose taker releases it. */
void clp_event_owner_end(uint32_t watch, uint64_t now_ns, bool told);

/* Does the thread wait for the lock now? event_wait.c; any thread. */
bool clp_event_lock_waits(uint64_t lock, int32_t tid);

/* ---- loop thread ---- */

/* `keep_files`: as of clp_wall_shot_init. */
void clp_event_owner_start(bool keep_files);
/* All watches end; no callback runs that could begin one. */
void clp_event_owner_stop(void);
/* Looks at the owners whose instant has come. Nanoseconds until the next one; UINT64_MAX: none. */
uint64_t clp_event_owner_round(uint64_t pass);
/* A CPU sample of some thread. */
void clp_event_owner_sampled(const struct clp_feed_sample *s);
/* Adds what the owner did to a wait that is over, or goes on until `until_ns`. */
void clp_event_owner_add(uint32_t watch, uint64_t until_ns, struct clp_event_member *m,
                         const struct clp_events_sink *sink);
void clp_event_owner_release(uint32_t watch);

#endif
