/* The engine that loads nothing into its target: the runtime's own events over its diagnostics
 * port.
 *
 *   long sessions  method loads; exceptions, contention, collections, allocations
 *   bursts         the runtime's sampler, on for a part of each period: it stops the whole runtime
 *                  for every sample, so its cost is bounded by how rarely it runs
 *   lists          short sessions whose only purpose is the list of methods at their end: one at
 *                  the start, one at the end of a window when a name is missing
 *
 * Nothing blocks: poll clp_epe_fds, call clp_epe_step. One owner, one thread. */
#ifndef CLP_AGENT_EVENTPIPE_ENGINE_H
#define CLP_AGENT_EVENTPIPE_ENGINE_H

#include "agent/eventpipe_build.h"
#include "agent/fault.h"
#include "sampler/eventpipe/journal.h"
#include "sampler/eventpipe/stream.h"
#include "sampler/symbols/native_symbols.h"

#define CLP_EPE_SESSIONS_MAX 6u
#define CLP_EPE_FDS (CLP_EPE_SESSIONS_MAX * CLP_STREAM_FDS)
#define CLP_EPE_BURST_NS (250 * CLP_NSEC_PER_MSEC)
#define CLP_EPE_PERIOD_NS CLP_NSEC_PER_SEC

struct clp_epe;

struct clp_epe_config {
    uint64_t burst_ns, period_ns;
    enum clp_span_mode spans;    /* labels of events, where the program has activities */
    uint32_t types;              /* bit (1 << enum clp_profile_type); 0: all that events can tell */
    struct clp_journal *journal; /* may be NULL */
    struct clp_symbols *symbols; /* for programs compiled ahead of time; may be NULL */
};

enum clp_epe_state {
    CLP_EPE_STARTING, /* sessions open, the first list is read */
    CLP_EPE_LIVE,
    CLP_EPE_CUTTING, /* the window is over, the sampler rests; names of its time are awaited */
    CLP_EPE_CUT,     /* its profile can be had, and then the next window has begun */
    CLP_EPE_ENDING,  /* the last window is over; streams are drained, names fetched */
    CLP_EPE_DONE,    /* all sessions are over: the profile can be had */
    CLP_EPE_FAILED,
};

/* A window that is over. */
struct clp_epe_window {
    struct clp_profile *profile;    /* the caller's */
    uint64_t start_ns, duration_ns; /* CLOCK_MONOTONIC; windows abut */
    uint64_t start_unix_ns;
    uint64_t samples;
};

/* *found stays the caller's and must outlive the engine. 0, or a fault. */
int clp_epe_new(const struct clp_dotnet *found, const struct clp_epe_config *config,
                struct clp_epe **ret, struct clp_fault *f) CLP_MUST_USE;
/* Closes what is open. Accepts NULL; returns NULL. */
struct clp_epe *clp_epe_free(struct clp_epe *e);

nfds_t clp_epe_fds(const struct clp_epe *e, struct pollfd *fds);
enum clp_epe_state clp_epe_step(struct clp_epe *e);
/* Ends the window; the sessions go on. LIVE only; step until CUT. */
void clp_epe_cut(struct clp_epe *e);
/* Ends the window and all sessions; step until DONE. */
void clp_epe_end(struct clp_epe *e);
/* When the window began, CLOCK_MONOTONIC; 0 before. */
uint64_t clp_epe_start_ns(const struct clp_epe *e);
const struct clp_fault *clp_epe_fault(const struct clp_epe *e);
/* At CUT, which makes it LIVE again, or once after DONE. 0 or -ENOMEM. */
int clp_epe_window(struct clp_epe *e, struct clp_epe_window *ret) CLP_MUST_USE;
bool clp_epe_is_cutting(const struct clp_epe *e);
/* How long to wait for descriptors before the next step. */
uint64_t clp_epe_patience_ns(const struct clp_epe *e);
/* Samples since the window began. */
uint64_t clp_epe_samples(const struct clp_epe *e);
/* Since when the target has not answered an opening, CLOCK_MONOTONIC; 0 when it has. */
uint64_t clp_epe_waits_since_ns(const struct clp_epe *e);

#endif
