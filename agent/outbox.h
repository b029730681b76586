/* Profiles on their way out. The agent's one call for a profile is clp_outbox_submit, and
 * clp_outbox_drain at the end.
 *
 * For each destination a queue in memory and a thread of its own, so that a slow intake delays
 * neither the rings nor the other destinations.  A failure that may pass is tried again with
 * growing pauses; what an intake will never take is dropped and told in the log. A queue holds
 * CLP_OUTBOX_BYTES; beyond that its oldest profile goes. Everything that is lost is counted. */
#ifndef CLP_AGENT_OUTBOX_H
#define CLP_AGENT_OUTBOX_H

#include "agent/fault.h"
#include "base/core/core.h"
#include "config/config.h"
#include "uploader/uploader.h"

#define CLP_OUTBOX_BYTES (8u << 20)

struct clp_outbox;

struct clp_profile_tag {
    const char *key, *value;
};

/* What a profile is about, in plain words; all texts are the caller's, "" where nothing is known.
 */
struct clp_profile_header {
    const char *service, *env, *version, *host;
    const char *runtime_id; /* UUID of the runtime instance */
    const char *runtime_version;
    const char *container_id;
    const char *git_repository, *git_commit;
    const struct clp_profile_tag *tags; /* all others */
    size_t tag_count;
    int32_t pid;                                   /* as the agent sees it */
    uint64_t start_unix_ns, end_unix_ns;           /* of the window, wall time */
    uint64_t start_monotonic_ns, end_monotonic_ns; /* its exact length */
    uint64_t seq;   /* of the window in its runtime instance, from 0 */
    uint32_t kinds; /* what is in it: bits (1 << enum clp_profile_type) */
    bool marked;    /* accounted for up to its end by the library */
};

/* The destinations of a configuration. 0, or a fault. */
int clp_outbox_new(const struct clp_config *config, struct clp_outbox **ret,
                   struct clp_fault *fault) CLP_MUST_USE;
/* Takes a profile of all its kinds (gzipped pprof; copied). 0: it is with every destination now; or
 * -ENOMEM, -EBADMSG (no pprof): lost, which is counted. */
int clp_outbox_submit(struct clp_outbox *o, const struct clp_profile_header *header,
                      const void *pprof, size_t len) CLP_MUST_USE;
/* Tries what is left once more until the deadline (CLOCK_MONOTONIC) and writes the rest below
 * spool.dir. Nothing may be submitted afterwards. The number of profiles that were lost by it. */
uint64_t clp_outbox_drain(struct clp_outbox *o, uint64_t deadline_ns);
/* After a drain, which it does with no time left otherwise. A destination that answers to nothing
 * is left behind to its own time-out. Accepts NULL; returns NULL. */
struct clp_outbox *clp_outbox_free(struct clp_outbox *o);

/* One destination for people; counts since the outbox was made. */
struct clp_outbox_lane {
    char name[32];
    uint64_t delivered, retried; /* exchanges */
    uint64_t refused;            /* the destination will never take them */
    uint64_t crowded_out;        /* the queue was full */
    uint64_t spooled, lost;      /* at the end */
    size_t waiting, waiting_bytes;
    char last_error[CLP_UPLOAD_TEXT_BYTES]; /* "" after a success */
};
size_t clp_outbox_lanes(struct clp_outbox *o, struct clp_outbox_lane *ret, size_t cap);

#endif
