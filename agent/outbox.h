/* Profiles on their way out. The agent's one call for a profile is clp_outbox_submit, and
 * clp_outbox_drain at the end.
 *
 * A thin layer over uploader/delivery.h, which keeps profiles in the spool until every upload of
 * the configuration has them; here the configuration becomes plain structs, and what is worth
 * telling goes to the log. Thread-safe. */
#ifndef CLP_AGENT_OUTBOX_H
#define CLP_AGENT_OUTBOX_H

#include "agent/fault.h"
#include "base/core/core.h"
#include "config/config.h"
#include "uploader/delivery.h"
#include "uploader/uploader.h"

#include <stdio.h>

#define CLP_OUTBOX_MEMORY_BYTES (16u << 20) /* where the spool cannot be written */
#define CLP_OUTBOX_FILES_MAX 10000u

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
    int32_t pid;                               /* as the agent sees it */
    int32_t ns_pid;                            /* as the target does; 0: not known */
    uint64_t cgroup_inode;                     /* of the target's cgroup directory; 0: not known */
    const struct clp_upload_number *endpoints; /* of the window: struct clp_upload_header */
    size_t endpoint_count;
    uint64_t start_unix_ns, end_unix_ns;           /* of the window, wall time */
    uint64_t start_monotonic_ns, end_monotonic_ns; /* its exact length */
    uint64_t seq;   /* of the window in its runtime instance, from 0 */
    uint32_t kinds; /* what is in it: bits (1 << enum clp_profile_type) */
    bool marked;    /* accounted for up to its end by the library */
};

/* The destinations of a configuration, which must outlive the outbox. `before`: the one whose place
 * it will take (clp_outbox_replace), or NULL; where both have the same spool it begins to work only
 * then. 0, or a fault. */
int clp_outbox_new(const struct clp_config *config, const struct clp_outbox *before,
                   struct clp_outbox **ret, struct clp_fault *fault) CLP_MUST_USE;
/* Ends `before`, which has until the deadline for what is under way; all that it has left, in files
 * and in memory, is delivered by `o`. Returns NULL. */
struct clp_outbox *clp_outbox_replace(struct clp_outbox *before, struct clp_outbox *o,
                                      uint64_t deadline_ns);
/* Stores a profile of all its kinds (gzipped pprof) before anything is sent; waits for the disk.
 * `stored` is called as clp_delivery_submit does. 0, or why it is lost, which is in the log and
 * counted. */
int clp_outbox_submit(struct clp_outbox *o, const struct clp_profile_header *header,
                      const void *pprof, size_t len, void (*stored)(void *context),
                      void *context) CLP_MUST_USE;
/* Tries what is left once more until the deadline (CLOCK_MONOTONIC); the rest stays in the spool
 * for the next start. Nothing may be submitted afterwards. The number of profiles that were lost by
 * it, which is in the log as well. */
uint64_t clp_outbox_drain(struct clp_outbox *o, uint64_t deadline_ns);
/* After a drain, which it does with no time left otherwise. Accepts NULL; returns NULL. */
struct clp_outbox *clp_outbox_free(struct clp_outbox *o);

/* One destination for people; counts since the outbox was made. */
struct clp_outbox_lane {
    char name[32];
    char where[256];             /* without secrets */
    uint64_t delivered, retried; /* profiles; tries */
    uint64_t refused;            /* all of `dropped` together */
    uint64_t dropped[CLP_DROPS]; /* by reason: clp_delivery_drop_name */
    uint64_t folded;             /* samples that went to [other] to meet its limits */
    uint64_t crowded_out;        /* the spool had no room, or they were too old: of all uploads */
    uint64_t spooled, lost;      /* wait in files; were lost: of all uploads */
    size_t waiting, waiting_bytes;
    char last_error[CLP_UPLOAD_TEXT_BYTES]; /* "" while all is well */
};
size_t clp_outbox_lanes(struct clp_outbox *o, struct clp_outbox_lane *ret, size_t cap);

/* Sends a small test profile to each upload and prints one line about each, as `clrpulse check`
 * does: "ok" or "error" and a sentence. How many failed, or a negative errno. */
int clp_outbox_check(const struct clp_config *config, FILE *out) CLP_MUST_USE;
/* The uploads of a configuration as the uploader takes them; texts point into it, and into `path`,
 * where profiles go without any upload. How many. */
size_t clp_outbox_uploads(const struct clp_config *config, char *path, size_t path_cap,
                          struct clp_upload ret[CLP_CONFIG_UPLOADS_MAX]);
/* What tells of the configuration's spool to clp_delivery_start; `uploads` stay the caller's. */
struct clp_delivery_config clp_outbox_delivery_config(const struct clp_config *config,
                                                      const struct clp_upload *uploads,
                                                      size_t count);

#endif
