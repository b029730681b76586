/* What one reader gets: definitions before their first use, samples, marks, counters.
 *
 * Nothing here waits for the reader.  A sample that finds the ring full is counted and its value
 * waits for the thread's next sample (or the next flush) in this feed; sums stay exact. Loop thread
 * only; memory comes as pages when the feed opens and goes when it closes. */
#ifndef CLP_SAMPLER_INPROC_FEED_H
#define CLP_SAMPLER_INPROC_FEED_H

#include "base/core/core.h"
#include "sampler/inproc/idset.h"
#include "sampler/inproc/threads.h"
#include "wire/ring.h"
#include "wire/wire.h"

#include <stdbool.h>

/* Counters that the whole library keeps; a feed shows the difference since it opened. */
struct clp_feed_totals {
    uint64_t process_cpu_ns, library_cpu_ns;
    uint64_t capture_full, capture_reentered, timer_quota, table_full, slowdowns;
    uint64_t wall_stacks, wall_moved, wall_visits, wall_cost_ns;
    uint64_t events[CLP_CTR_EVENT_SESSIONS_REFUSED - CLP_CTR_EXCEPTIONS + 1]; /* in that order */
    /* states, shown as they are */
    uint64_t threads, timers, bodies, library_bytes, interval_ns, span_hook;
    uint64_t runtime[CLP_CTR_THREADS_POOL - CLP_CTR_HEAP_GEN0_BYTES + 1]; /* in that order */
};

#define CLP_FEED_KINDS 2 /* kinds whose time waits for room: CPU, WALL */

struct clp_feed_thread; /* what this reader knows of a thread */
struct clp_feed_unsent; /* events of one type that wait for room */

struct clp_feed {
    struct clp_ring ring;
    struct clp_idset images, methods, bodies, endpoints;
    struct clp_idset gone_images, gone_methods; /* that was told */
    struct clp_feed_thread *threads;
    uint32_t slot_high;                  /* entries of slots in use: [0, slot_high) */
    uint64_t waiting_ns[CLP_FEED_KINDS]; /* of all samples that found the ring full */
    struct clp_feed_totals base;
    uint64_t counters[CLP_CTR_COUNT];
    /* Values of events that found the ring full: by what they are of, and what has no place there.
     */
    struct clp_feed_unsent *unsent; /* NULL before the first one */
    uint32_t unsent_count;
    struct {
        double value, value2;
    } waiting_events[CLP_SAMPLE_KIND_COUNT];
};

/* A sampled stack, ready for every reader. */
struct clp_feed_sample {
    const struct clp_thread *thread;
    enum clp_sample_kind kind;
    uint64_t value_ns, time_ns;
    uint64_t value2; /* of the kind */
    uint16_t flags;  /* CLP_SAMPLE_* */
    uint16_t count;  /* frames, leaf first; at least 1 */
    bool hijacked;   /* a return address was repaired */
    const uint64_t *frames;
    const struct clp_span *span; /* span_id 0 = none; NULL = none */
};

/* What some events stand for, ready for every reader. */
struct clp_feed_event {
    const struct clp_thread *thread;
    uint64_t time_ns, number;
    double value, value2;
    uint16_t kind, flags, count;
    uint16_t other_count; /* how many of the frames, at their end, are another thread's */
    uint16_t text_len[CLP_EVENT_TEXTS]; /* at most CLP_EVENT_TEXT_MAX_BYTES; UTF-8 */
    const uint64_t *frames;
    const char *texts[CLP_EVENT_TEXTS]; /* NULL where the length is 0 */
    const struct clp_span *span;        /* as of samples */
};

/* `mapping` is a checked shared memory object (wire/memory.h). `from_ns`: CLOCK_MONOTONIC from
 * which on its reader is told, or 0 (wire.h). 0, -EPROTO, -ENOMEM. */
int clp_feed_open(struct clp_feed *f, void *mapping, size_t mapped_bytes,
                  const struct clp_feed_totals *now, uint64_t from_ns) CLP_MUST_USE;
void clp_feed_close(struct clp_feed *f);

/* false: there was no room; the value waits, and the ring has not got the stack. */
bool clp_feed_stack(struct clp_feed *f, const struct clp_feed_sample *s);
/* A local root has ended, with the number of its endpoint; or, with 0 for it, `ended` more of that
 * endpoint. False when the ring is full. */
bool clp_feed_root(struct clp_feed *f, uint64_t local_root_span_id, uint32_t endpoint,
                   uint32_t ended);
/* Time without a stack of its own: `special` 0 = the stack of the thread's last sample. */
void clp_feed_time(struct clp_feed *f, const struct clp_thread *t, enum clp_special special,
                   uint64_t cpu_ns, uint64_t time_ns);

/* Waiting time without a stack of its own. `special` 0: the stack of the thread's last sample of
 * kind WALL, or, with the flag CLP_SAMPLE_CPU_WAIT, of kind CPU. */
struct clp_feed_waiting {
    enum clp_special special;
    uint16_t flags;
    uint64_t wait_ns, time_ns;
    const struct clp_span *span; /* with CLP_SAMPLE_CPU_WAIT: where the thread was; NULL: in none */
};
void clp_feed_wait(struct clp_feed *f, const struct clp_thread *t,
                   const struct clp_feed_waiting *w);

void clp_feed_event(struct clp_feed *f, const struct clp_feed_event *e);
/* Defines a thread and frames before they are used, as far as there is room. */
void clp_feed_define(struct clp_feed *f, const struct clp_thread *t, const uint64_t *frames,
                     uint16_t count);

/* Writes what waits for room, then the mark with the counters as they are. true when both are in
 * the ring; false: try later. */
bool clp_feed_mark(struct clp_feed *f, uint64_t flush_id, uint64_t time_ns);

/* Tells of what has unloaded since it was defined, as far as there is room. */
void clp_feed_tell_gone(struct clp_feed *f);

/* Counts a drop of a capture under its reason (CLP_CTR_DROP_*). */
void clp_feed_count(struct clp_feed *f, enum clp_counter counter);
/* Shows counters and heartbeat to the reader. */
void clp_feed_publish(struct clp_feed *f, const struct clp_feed_totals *now, uint64_t now_ns);
size_t clp_feed_bytes(const struct clp_feed *f);

#endif
