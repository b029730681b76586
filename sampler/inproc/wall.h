/* Where every thread waits: looks at all threads at random instants and wakes none of them.
 *
 * A thread whose CPU clock is what it was when its stack was taken has the same stack: its time is
 * counted again, for the price of reading the clock.  Otherwise its stack is taken anew
 * (wall_shot.h), and the time since is split (wall_account.h).  Looks begin at a mean of 10 ms; a
 * thread that does not move is looked at less and less often, which loses nothing; all of them more
 * rarely when the looks would cost more than their budget. The pieces, and a thread's CPU time, add
 * up to the time that it lived. Loop thread only. */
#ifndef CLP_SAMPLER_INPROC_WALL_H
#define CLP_SAMPLER_INPROC_WALL_H

#include "base/core/core.h"
#include "sampler/inproc/feed.h"
#include "sampler/inproc/threads.h"

#include <stdbool.h>

/* Where the pieces go: every reader's feed. */
struct clp_wall_sink {
    void *user;
    /* A stack of kind WALL. False when a reader has not got it. */
    bool (*stack)(void *user, const struct clp_feed_sample *s);
    /* Time for no new stack; as clp_feed_wait. */
    void (*wait)(void *user, const struct clp_thread *t, const struct clp_feed_waiting *w);
};

struct clp_wall_totals {
    uint64_t stacks, moved, visits, cost_ns;
};

/* After clp_threads_start.  What threads waited before now is not told.  `keep_files`: the loop's
 * descriptors are its own.  While it runs, another start changes the budget (millionths of a core)
 * and takes every stack anew, for readers that have not got them. 0 or -ENOMEM. */
int clp_wall_start(uint64_t now_ns, uint32_t budget_ppm, bool keep_files,
                   const struct clp_wall_sink *sink) CLP_MUST_USE;
void clp_wall_stop(void);

/* Looks at the threads whose instant has come. `pass` as for clp_images_find. Nanoseconds until the
 * next one is due; UINT64_MAX while it does not run. */
uint64_t clp_wall_round(uint64_t now_ns, uint64_t pass);
/* Gives out all waiting time up to now. After clp_threads_flush. */
void clp_wall_flush(uint64_t pass);

struct clp_record;
struct clp_wall_shot;
/* One shot (clp_wall_shot_take, after clp_wall_shot_init) of a thread of the table, tried again a
 * few times while it runs. Whether or not wall time is sampled. */
int clp_wall_shoot(struct clp_record *r, uint32_t copy_bytes,
                   struct clp_wall_shot *ret) CLP_MUST_USE;

struct clp_wall_totals clp_wall_totals(void);
size_t clp_wall_bytes(void);

#endif
