/* Profiles on their way out: into the spool, then to every intake, each with its own progress.
 *
 * One thread does all HTTP with libcurl's multi interface, another writes to directories; neither
 * is ever waited for by the one who submits. For one target and one intake the order is kept; up to
 * CLP_DELIVERY_FLIGHTS profiles of different targets are on their way to an intake at once.
 *
 * What may pass is tried again with growing, jittered pauses, for as long as the spool keeps the
 * profile; what an intake refuses is dropped for that intake and told. Nothing is sent to an intake
 * again once it has said 2xx. All functions are thread-safe. */
#ifndef CLP_UPLOADER_DELIVERY_H
#define CLP_UPLOADER_DELIVERY_H

#include "base/core/core.h"
#include "base/log.h"
#include "uploader/spool.h"
#include "uploader/uploader.h"

#include <stdbool.h>

#define CLP_DELIVERY_INTAKES_MAX CLP_SPOOL_INTAKES_MAX
#define CLP_DELIVERY_FLIGHTS 4u

struct clp_delivery_config {
    const struct clp_upload *uploads;
    size_t upload_count;   /* 1 to CLP_DELIVERY_INTAKES_MAX */
    const char *spool_dir; /* NULL: memory only */
    bool needs_spool;      /* else a directory that cannot be used gives way to memory */
    uint64_t spool_bytes_max, spool_age_max_ns;
    uint32_t spool_files_max;
    uint64_t memory_bytes_max;                 /* when the directory cannot be written */
    uint64_t retry_first_ns, retry_longest_ns; /* 0: 1 s, 60 s */
    /* What is worth telling, from any thread; `text` has no secrets. */
    void (*say)(void *context, enum clp_log_level level, const char *text);
    void *context;
};

enum clp_delivery_drop {
    CLP_DROP_REFUSED,   /* by the intake's status */
    CLP_DROP_POISON,    /* answered with 5xx while others were taken */
    CLP_DROP_TOO_LARGE, /* even when folded */
    CLP_DROP_STALE,     /* of a time that the intake does not take */
    CLP_DROP_DAMAGED,   /* the profile could not be read */
    CLP_DROPS
};
/* "refused", "poison", "too_large", "stale", "damaged". */
const char *clp_delivery_drop_name(enum clp_delivery_drop drop);

struct clp_delivery_stats {
    enum clp_upload_kind kind;
    char where[256];
    bool failing;
    uint64_t sent, retried; /* profiles that are with the intake; tries that failed */
    uint64_t dropped[CLP_DROPS];
    uint64_t folded; /* samples that went to [other] to meet its limits */
    uint64_t backlog, backlog_bytes;
    uint64_t oldest_unix_ns; /* start of the oldest in the backlog; 0: none */
    uint64_t error_unix_ns;  /* of the last error; 0: none */
    char error[CLP_UPLOAD_TEXT_BYTES];
};

struct clp_delivery;

/* Opens intakes and spool, starts the threads. Without a writable directory profiles wait in
 * memory, and that is said; with `needs_spool` it fails with what the file system said. 0; -EINVAL
 * (an upload that cannot work), -EBUSY (another agent has the spool), -ENOMEM, -EAGAIN (no
 * threads), with a sentence in `why`. */
int clp_delivery_start(const struct clp_delivery_config *c, struct clp_delivery **ret, char *why,
                       size_t why_cap) CLP_MUST_USE;

/* Stores a profile (gzipped pprof with all sample types of the window; docs/pprof.md) before
 * anything is sent. Waits for the disk (fsync). `stored` (may be NULL) is called once it is stored
 * and before anything of it may be sent: who is killed before that call has ended finds the profile
 * in the spool, unless it had to wait in memory. It must not call delivery. 0, or why the profile
 * is lost, which is counted and said. */
int clp_delivery_submit(struct clp_delivery *d, const struct clp_upload_header *h,
                        const void *profile, size_t len, void (*stored)(void *context),
                        void *context) CLP_MUST_USE;

/* Waits until nothing is left or the deadline (CLOCK_MONOTONIC) has come; what is left then. */
uint64_t clp_delivery_wait(struct clp_delivery *d, uint64_t deadline_ns);

size_t clp_delivery_intakes(const struct clp_delivery *d);
void clp_delivery_stats(struct clp_delivery *d, size_t intake, struct clp_delivery_stats *ret);
/* *ret_memory_only: there is no spool directory. */
void clp_delivery_spool_counts(struct clp_delivery *d, struct clp_spool_counts *ret,
                               bool *ret_memory_only);

/* Another delivery takes the place of this one: tries everything once more until the deadline,
 * breaks off what is under way then, ends the threads. What is left is in *ret, for
 * clp_delivery_adopt or clp_spool_close. Returns NULL. */
struct clp_delivery *clp_delivery_retire(struct clp_delivery *d, uint64_t deadline_ns,
                                         struct clp_spool **ret);
/* Goes on with what another one has left; closes its spool. */
void clp_delivery_adopt(struct clp_delivery *d, struct clp_spool *left);

/* Tries everything once more until the deadline, breaks off what is under way then, writes what is
 * only in memory to the spool if that works now, ends the threads. Says what is left and what is
 * lost; the number of the latter in *ret_lost (may be NULL). Accepts NULL; returns NULL. */
struct clp_delivery *clp_delivery_stop(struct clp_delivery *d, uint64_t deadline_ns,
                                       uint64_t *ret_lost);

#endif
