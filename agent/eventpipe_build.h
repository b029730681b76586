/* From EventPipe events to a profile.
 *
 * Samples wait until the names of their time are known: the runtime's streams lag behind one
 * another, and precompiled methods are only named by the list that the runtime makes when a session
 * stops. So the order of calls is: events of all streams, clocks and bursts; clp_epb_settle now and
 * then; clp_epb_finish when the list has been read. Every step depends on the bytes of the streams
 * alone: the same events give the same profile.
 *
 * Estimators:
 *  - wall: the sampler of the runtime takes every managed thread, running or not. A sample is worth
 * the time since its thread's sample before; what a burst saw stands for its whole period.
 *  - CPU: a thread's own clock, as the kernel has it, shared over its samples between two readings
 * by their wall time. The sample's type field is not used: it says in which mode a thread was
 * stopped, and on some runtimes always the same.
 *  - exceptions, contentions, collections: every one is told and counted.
 *  - allocations: AllocationSampled (.NET 10) is random over bytes, mean 100 KiB: an object of size
 * s stands for 1 / (1 - exp(-s / 102400)). AllocationTick (8, 9): bytes are right in all; the split
 *    over classes is an estimate of unknown bias, and the profile says so.
 *
 * One owner; not thread-safe. */
#ifndef CLP_AGENT_EVENTPIPE_BUILD_H
#define CLP_AGENT_EVENTPIPE_BUILD_H

#include "agent/span_labels.h"
#include "base/core/core.h"
#include "pprof/profile.h"
#include "sampler/nettrace/nettrace.h"

/* Ceilings of one window; beyond them samples are counted as lost. */
#define CLP_EPB_SAMPLES_MAX (1u << 19)
#define CLP_EPB_STACKS_MAX (1u << 17)
#define CLP_EPB_FRAMES_MAX (4u << 20)
#define CLP_EPB_BURSTS_MAX (1u << 14)

/* What can be had from events. */
enum clp_epb_want {
    CLP_EPB_CPU = 1u << 0,
    CLP_EPB_WALLTIME = 1u << 1,
    CLP_EPB_EXCEPTIONS = 1u << 2,
    CLP_EPB_ALLOCATIONS = 1u << 3,
    CLP_EPB_LOCKS = 1u << 4,
    CLP_EPB_COLLECTIONS = 1u << 5,
    CLP_EPB_ALL = (1u << 6) - 1,
};
/* What these types ask for, bit (1 << enum clp_profile_type); 0: everything. */
uint32_t clp_epb_wants(uint32_t types);

struct clp_epb;

struct clp_epb_config {
    /* The name of a thread as the kernel has it, or NULL; the text is copied. May be NULL. */
    const char *(*thread_name)(void *context, uint64_t tid);
    /* The name of code that no event tells of: true with its text. May be NULL. */
    bool (*native_name)(void *context, uint64_t address, char *name, size_t cap);
    void *context;
    bool cpu;       /* clocks will come: without them the profile has no CPU */
    bool unsampled; /* the runtime takes no samples, whoever asks */
    enum clp_span_mode spans;
    uint32_t wants; /* enum clp_epb_want; other events are not taken. 0: all */
};

/* 0 or -ENOMEM. */
int clp_epb_new(const struct clp_epb_config *config, struct clp_epb **ret) CLP_MUST_USE;
/* Accepts NULL; returns NULL. */
struct clp_epb *clp_epb_free(struct clp_epb *b);

/* Samples from before this moment are left out, as sessions are open before a window begins; code
 * is taken whenever it came. */
void clp_epb_begin(struct clp_epb *b, uint64_t start_ticks);
/* An event of any of the target's streams; each stream in its order. */
void clp_epb_event(struct clp_epb *b, const struct clp_nettrace_event *e);
/* The sampler was on from `from` to `to`, and what it saw stands for `period` ticks that end with
 * the next burst. Without any burst the samples stand for themselves. */
void clp_epb_burst(struct clp_epb *b, uint64_t from, uint64_t to, uint64_t period);
/* A thread's CPU clock moved by `cpu_ns` between two moments. Moments of a thread come in order. */
void clp_epb_clock(struct clp_epb *b, uint64_t tid, uint64_t from, uint64_t to, uint64_t cpu_ns);
/* CPU of the process that no thread's clock has: of threads that came and went in between. */
void clp_epb_short_lived(struct clp_epb *b, uint64_t cpu_ns);

/* Gives the samples before `until` their values; call it between bursts. Those before `named_until`
 * get their place in the profile where all names are known: until then the streams have told every
 * load and unload of code. A later one waits, for its code may have been freed and its address be
 * another's by now. */
void clp_epb_settle(struct clp_epb *b, uint64_t until, uint64_t named_until);
/* Loads or unloads of code were lost. */
void clp_epb_lost_code(struct clp_epb *b);

struct clp_epb_window {
    uint64_t start_unix_ns, duration_ns;
    uint64_t end_ticks;        /* waits that are open then are reported as long as they are */
    uint64_t lost;             /* events that the target dropped */
    uint64_t refused_sessions; /* bursts of the sampler, or lists, that the target did not give */
    uint64_t lists;            /* of methods, that it gave */
    bool partial;
};
/* Settles all that is left before w->end_ticks, `[unknown]` where there is still no name, and gives
 * the profile. 0 or -ENOMEM. The next window begins with what is younger, and with all names. */
int clp_epb_finish(struct clp_epb *b, const struct clp_epb_window *w,
                   struct clp_profile **ret) CLP_MUST_USE;

/* Settled samples that lack a name: a list of methods would help. */
uint32_t clp_epb_nameless(struct clp_epb *b);
/* Samples of all kinds since the window began. */
uint64_t clp_epb_samples(const struct clp_epb *b);

#endif
