/* Wall time for windows that are measured on the monotonic clock.
 *
 * Windows are stamped through one offset between the two clocks, so the windows of a target abut to
 * the nanosecond.  The offset follows the wall clock only when that has stepped, and then at a
 * window's end:
 *
 *     forward           followed: the stamps jump, which leaves no overlap
 *     back, 10 min at   not followed: the next windows would carry times that are taken already.
 *       most              Their stamps stay ahead by that much, which intakes accept.
 *     back by more      followed: intakes refuse profiles from so far in the future
 *
 * Pure: the caller reads the clocks. One owner. */
#ifndef CLP_AGENT_WALLTIME_H
#define CLP_AGENT_WALLTIME_H

#include "base/core/core.h"

#define CLP_WALLTIME_NOISE_NS (100 * CLP_NSEC_PER_MSEC) /* less is no step */
#define CLP_WALLTIME_AHEAD_MAX_NS (600 * CLP_NSEC_PER_SEC)

struct clp_walltime {
    int64_t offset_ns; /* wall = monotonic + offset */
    int64_t ahead_ns;  /* of the wall clock, after a step that was not followed */
    uint64_t era;      /* grows whenever the offset changes */
};

enum clp_walltime_step {
    CLP_WALLTIME_STEADY,
    CLP_WALLTIME_FOLLOWED, /* from now on stamps are the wall clock's */
    CLP_WALLTIME_HELD,     /* stamps stay ahead by w->ahead_ns */
};

void clp_walltime_init(struct clp_walltime *w, uint64_t monotonic_ns, uint64_t realtime_ns);
/* Compares the clocks, read at the same moment; *ret_step_ns is by how much the wall clock moved
 * against the one before (0 when steady). A step that is held is told once. */
enum clp_walltime_step clp_walltime_check(struct clp_walltime *w, uint64_t monotonic_ns,
                                          uint64_t realtime_ns, int64_t *ret_step_ns);
/* The stamp of a moment; never before 1970. */
uint64_t clp_walltime_of(const struct clp_walltime *w, uint64_t monotonic_ns);

#endif
