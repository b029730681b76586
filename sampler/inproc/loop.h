/* The library's one native thread: serves readers, drains captures, walks, writes to the rings. */
#ifndef CLP_SAMPLER_INPROC_LOOP_H
#define CLP_SAMPLER_INPROC_LOOP_H

#include "base/core/core.h"
#include "wire/wire.h"

#include <stdbool.h>

/* What the loop asks of the CLR side (entry.c); plain functions so that tests can run the loop
 * without a runtime. */
struct clp_loop_runtime {
    void (*enumerate)(void);      /* existing threads, modules, bodies; once, on the loop thread */
    bool (*request_detach)(void); /* RequestProfilerDetach; false: not now */
    /* Has the runtime ceased to call us (counted.h)? NULL in tests. Loop thread. */
    bool (*has_lost_count)(void);
    /* What may have gone unseen is not to be believed any more. Loop thread. */
    void (*lost_sight)(void);
    uint16_t major, minor, patch;
    bool attaching; /* clp_loop_runtime_ready is due at once, not only when the program starts */
};

/* Starts the thread (all signals blocked, name "clrpulse", its own fd table where
 * close_range(UNSHARE) is allowed). Idempotent. 0 or -errno. */
int clp_loop_start(const struct clp_loop_runtime *runtime) CLP_MUST_USE;
/* A reader was announced by an attach; any thread. The loop connects to its socket. */
int clp_loop_add_reader(const struct clp_attach_data *data) CLP_MUST_USE;
/* Waits, for `ns` at most, until each announced reader has welcomed us or is gone. */
void clp_loop_wait_for_readers(uint64_t ns);
/* Ends the loop's sleep: there is something to look at. Any thread; a system call. */
void clp_loop_wake(void);
/* ProfilerAttachComplete / runtime ready: enumeration may begin, also once more. Any thread. */
void clp_loop_runtime_ready(void);
/* Process shuts down: flush to the readers within `budget_ns` (100 ms), then stop. Any thread. */
void clp_loop_shutdown(uint64_t budget_ns);
/* Detach succeeded: timers deleted, ring drained, signal restored, thread ended. Any thread but the
 * loop's own; returns when the library is dormant. */
void clp_loop_stop(void);

#endif
