/* From one target's records to profiles, one a window.
 *
 * Definitions (images, methods, bodies, threads) stay for the target's life, samples go into the
 * window's profile: raw frames are looked up once a window, one function is one location, one stack
 * with one label set is one sample. What is foreign in a record was checked by wire/reader.h; ids
 * that nothing defines are shown as
 * `[unknown]` and counted.
 *
 * One thread; the symbol cache is shared by all targets of that thread. */
#ifndef CLP_AGENT_PROFILE_BUILD_H
#define CLP_AGENT_PROFILE_BUILD_H

#include "agent/span_labels.h"
#include "agent/type_counts.h"
#include "base/core/core.h"
#include "config/value.h"
#include "pprof/profile.h"
#include "sampler/symbols/native_symbols.h"
#include "wire/reader.h"
#include "wire/wire.h"

#include <stdbool.h>

/* Ceilings of one target; beyond them definitions are refused and counted. */
#define CLP_BUILD_DEFINITIONS_BYTES (16u << 20)
#define CLP_BUILD_THREADS_MAX 16384u

struct clp_build;

struct clp_build_config {
    struct clp_symbols *symbols;
    int root_fd;              /* the target's root; must outlive the builder */
    int32_t pid;              /* as the agent sees it */
    int32_t ns_pid;           /* as the target does */
    const char *main_binary;  /* path of its executable, or NULL */
    uint32_t types;           /* bits 1 << enum clp_profile_type; 0: CPU time */
    bool ticks;               /* the runtime tells of allocations by ticks, not at random */
    uint64_t cpu_interval_ns; /* the period that profiles state */
    enum clp_span_mode spans;
    bool leave_out_idle; /* waits of idle threads are counted, and not shown */
    bool names_later;    /* the caller calls clp_build_name */
};

/* Texts are copied. 0 or -ENOMEM. */
int clp_build_new(const struct clp_build_config *config, struct clp_build **ret) CLP_MUST_USE;
/* Accepts NULL; returns NULL. */
struct clp_build *clp_build_free(struct clp_build *b);

/* Takes any record but MARK, which it ignores. */
void clp_build_record(struct clp_build *b, const struct clp_reader_record *record);

/* What the library has counted, as clp_session_counter gives it. */
struct clp_build_window {
    uint64_t start_unix_ns;
    uint64_t duration_ns;
    uint64_t counters[CLP_CTR_COUNT];
};
/* Ends the window: the profile with its comments, the caller's now; the next window begins. 0 or
 * -ENOMEM (the window's samples are lost then, and counted in the next one's comments). */
int clp_build_finish(struct clp_build *b, const struct clp_build_window *w,
                     struct clp_profile **ret) CLP_MUST_USE;

/* With names_later, for the profile of the last clp_build_finish: how many of its requests have not
 * ended yet, whose endpoint may still change; and the end of it: adds the endpoints as they are
 * known by now. Before the next clp_build_finish. */
uint32_t clp_build_open_roots(const struct clp_build *b);
void clp_build_name(struct clp_build *b, struct clp_profile *p);

/* Requests that ended in the window of the last clp_build_finish, by endpoint; the busiest first.
 * Valid until the next one. */
const struct clp_upload_number *clp_build_requests(const struct clp_build *b, size_t *ret_count);

/* What the library has counted in the window of the last clp_build_finish, indexed by enum
 * clp_counter (states as they were at its end), and the exceptions that were thrown in it. Valid
 * until the next one. */
const uint64_t *clp_build_counted(const struct clp_build *b);
const struct clp_type_counts *clp_build_exceptions(const struct clp_build *b);

/* Room from the next window on: a part of what one target may have alone, as many targets share the
 * agent's memory. `share` is at least 1. */
void clp_build_set_share(struct clp_build *b, unsigned share);
/* What the profiles hold and state, from the next window on. */
void clp_build_set_types(struct clp_build *b, uint32_t types, uint64_t cpu_interval_ns);
/* Samples since the window began. */
uint64_t clp_build_samples(const struct clp_build *b);

#endif
