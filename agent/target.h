/* A target under profile: its session, its windows, its profiles.
 *
 * A window ends when the library's MARK passes by in the ring, or when the library does not answer,
 * or with the target; each end gives one profile to the owner. A target with the engine eventpipe
 * has no library and no session; its windows come from eventpipe_engine.h. One thread. */
#ifndef CLP_AGENT_TARGET_H
#define CLP_AGENT_TARGET_H

#include "agent/eventpipe_engine.h"
#include "agent/profile_build.h"
#include "agent/session.h"
#include "agent/walltime.h"
#include "base/core/core.h"
#include "pprof/profile.h"

#include <stdbool.h>

#define CLP_TARGET_FDS CLP_MAX(CLP_SESSION_FDS, CLP_EPE_FDS)
#define CLP_TARGET_MARK_NS (2 * CLP_NSEC_PER_SEC) /* the library's time to answer FLUSH */

struct clp_target;

/* A window that is over. The profile is the receiver's only during the call. */
struct clp_window {
    struct clp_profile *profile;
    uint64_t start_unix_ns, duration_ns;
    uint64_t start_ns; /* CLOCK_MONOTONIC; windows of a session abut */
    uint64_t samples;
    uint32_t types; /* that the profile shows, bit (1 << enum clp_profile_type) */
    bool marked;    /* accounted for by the library up to its end */
    bool last;      /* the target has ended or failed */
    const struct clp_upload_number *requests; /* that ended in it, by endpoint */
    size_t request_count;
    /* What the library has counted in it, by enum clp_counter, and its exceptions by type; NULL
     * with the engine eventpipe. */
    const uint64_t *counted;
    const struct clp_type_counts *exceptions;
    uint64_t kernel_cpu_ns; /* of the process at its end, all threads; 0: it is gone */
};

struct clp_target_config {
    const char *library;
    struct clp_symbols *symbols;
    struct clp_settings settings;
    const char *no_hook; /* as in session.h */
    enum clp_span_mode spans;
    uint32_t types; /* bit (1 << enum clp_profile_type) */
    bool leave_out_idle;
    bool events;                 /* the engine eventpipe: nothing is loaded */
    struct clp_journal *journal; /* of its sessions, the owner's; may be NULL */
    /* A window with requests that have not ended is given when they have, or when the next window
     * ends: what they are called is known then. Else each window is given as soon as it has ended.
     */
    bool names_later;
    bool one_of_many;                    /* as in session.h */
    const struct clp_walltime *walltime; /* the owner's; it outlives the target */
    void (*window)(void *context, struct clp_target *t, const struct clp_window *w);
    void *context;
};

/* Begins to attach to a READY process. *found stays the caller's. 0, or a fault. */
int clp_target_start(const struct clp_dotnet *found, const struct clp_target_config *config,
                     struct clp_target **ret, struct clp_fault *fault) CLP_MUST_USE;
/* The same for a process that we start and that loads the library by itself: see
 * clp_session_announce and clp_session_watch. */
int clp_target_announce(const struct clp_target_config *config, struct clp_target **ret,
                        char ret_announcement[CLP_ANNOUNCEMENT_BYTES],
                        struct clp_fault *fault) CLP_MUST_USE;
/* Leaves without a word. Accepts NULL; returns NULL. */
struct clp_target *clp_target_free(struct clp_target *t);

const struct clp_dotnet *clp_target_process(const struct clp_target *t); /* the session's fds */
/* NULL with the engine eventpipe. */
struct clp_session *clp_target_session(struct clp_target *t);
/* Why the state is FAILED, or how it ended. */
const struct clp_fault *clp_target_fault(const struct clp_target *t);
/* Descriptors to poll, at most CLP_TARGET_FDS; how many. */
nfds_t clp_target_fds(const struct clp_target *t, struct pollfd *fds);
/* Says goodbye without another window; only clp_target_free may follow. */
void clp_target_bye(struct clp_target *t, bool detach);

/* Hand-shake, socket, ring, window. Call at events of the session's descriptors and at
 * clp_target_due_ns. A target that has ended or failed gives its last window in this call. */
enum clp_session_state clp_target_step(struct clp_target *t, uint64_t now_ns);

/* Ends the window as soon as the library has answered; does nothing when that is already under way.
 */
void clp_target_cut(struct clp_target *t, uint64_t now_ns);
bool clp_target_is_cutting(const struct clp_target *t);
/* Ends the session from our side: reads what is there, gives what has come since the last window,
 * says goodbye; `detach` as for clp_session_bye. Only clp_target_free may follow. */
void clp_target_end(struct clp_target *t, uint64_t now_ns, bool detach);
/* When the next step is due without an event, CLOCK_MONOTONIC: soon while a MARK is waited for,
 * which no descriptor tells; seldom while the ring fills slowly. 0 before the first step. */
uint64_t clp_target_due_ns(const struct clp_target *t);
/* When the window began, CLOCK_MONOTONIC; 0 while attaching. */
uint64_t clp_target_window_start_ns(const struct clp_target *t);

/* Other settings and types: the library samples by them at once, profiles show them from the next
 * window on. */
void clp_target_set(struct clp_target *t, const struct clp_settings *settings, uint32_t types);
/* clp_build_set_share. */
void clp_target_set_share(struct clp_target *t, unsigned share);
/* Samples since the window began. */
uint64_t clp_target_samples(const struct clp_target *t);

#endif
