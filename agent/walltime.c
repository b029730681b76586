#include "agent/walltime.h"

static int64_t difference(uint64_t realtime_ns, uint64_t monotonic_ns)
{
    return (int64_t)realtime_ns - (int64_t)monotonic_ns;
}

static uint64_t size_of(int64_t ns)
{
    return ns < 0 ? (uint64_t)-ns : (uint64_t)ns;
}

void clp_walltime_init(struct clp_walltime *w, uint64_t monotonic_ns, uint64_t realtime_ns)
{
    *w = (struct clp_walltime){.offset_ns = difference(realtime_ns, monotonic_ns), .era = 1};
}

/* A wall clock that is where the stamps are already moves nothing: not even by what is no step. */
static void follow(struct clp_walltime *w, int64_t offset_ns)
{
    w->ahead_ns = 0;
    if (size_of(w->offset_ns - offset_ns) < CLP_WALLTIME_NOISE_NS)
        return;
    w->offset_ns = offset_ns;
    w->era++;
}

enum clp_walltime_step clp_walltime_check(struct clp_walltime *w, uint64_t monotonic_ns,
                                          uint64_t realtime_ns, int64_t *ret_step_ns)
{
    int64_t now_offset_ns = difference(realtime_ns, monotonic_ns);
    int64_t behind_ns = w->offset_ns - now_offset_ns; /* of the wall clock, seen from our stamps */
    *ret_step_ns = w->ahead_ns - behind_ns;
    if (size_of(*ret_step_ns) < CLP_WALLTIME_NOISE_NS) {
        *ret_step_ns = 0;
        return CLP_WALLTIME_STEADY;
    }
    if (behind_ns >= (int64_t)CLP_WALLTIME_NOISE_NS &&
        behind_ns <= (int64_t)CLP_WALLTIME_AHEAD_MAX_NS) {
        w->ahead_ns = behind_ns;
        return CLP_WALLTIME_HELD;
    }
    follow(w, now_offset_ns);
    return CLP_WALLTIME_FOLLOWED;
}

uint64_t clp_walltime_of(const struct clp_walltime *w, uint64_t monotonic_ns)
{
    int64_t ns = (int64_t)monotonic_ns + w->offset_ns;
    return ns > 0 ? (uint64_t)ns : 0;
}
