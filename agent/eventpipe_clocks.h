/* CPU clocks of a target's threads, from outside: /proc/PID/task/TID/schedstat, which counts in
 * nanoseconds, and the process's own clock for what threads took that came and went in between.
 *
 * Threads are called by their numbers in the target's pid namespace, as its events call them. One
 * owner; not thread-safe. */
#ifndef CLP_AGENT_EVENTPIPE_CLOCKS_H
#define CLP_AGENT_EVENTPIPE_CLOCKS_H

#include "base/core/core.h"

#include <stdbool.h>

#define CLP_CLOCKS_THREADS_MAX 16384u

struct clp_clocks;

/* `same_namespace`: the target counts threads as we do. 0, -ENOMEM, or what opening
 * /proc/PID/task said. */
int clp_clocks_new(int32_t pid, bool same_namespace, struct clp_clocks **ret) CLP_MUST_USE;
/* Accepts NULL; returns NULL. */
struct clp_clocks *clp_clocks_free(struct clp_clocks *c);

struct clp_clocks_moved {
    uint64_t tid;
    uint64_t from_ns, to_ns; /* CLOCK_MONOTONIC */
    uint64_t cpu_ns;
};
/* Reads all and tells of each that moved since the reading before; the first reading tells nothing.
 * 0 or -errno: the process is gone. */
int clp_clocks_read(struct clp_clocks *c,
                    void (*moved)(void *context, const struct clp_clocks_moved *m),
                    void *context) CLP_MUST_USE;
/* CPU of the process so far that no reading has told of; starts at the first reading. */
uint64_t clp_clocks_untold_ns(struct clp_clocks *c);
/* The kernel's name of a thread that a reading has seen, or NULL. */
const char *clp_clocks_name(const struct clp_clocks *c, uint64_t tid);

#endif
