/* Kept events between their capture and the end of the epoch: walked stack, thread and texts.
 * Loop thread only; memory is given back all at once. */
#ifndef CLP_SAMPLER_INPROC_EVENT_MEMBER_H
#define CLP_SAMPLER_INPROC_EVENT_MEMBER_H

#include "sampler/inproc/event_names.h"
#include "sampler/inproc/events.h"
#include "sampler/unwind/walk.h"

#define CLP_EVENT_MEMBERS_BYTES (3u << 19) /* untouched while an epoch has few */

struct clp_event_member {
    struct clp_event_member *next;   /* for the owner */
    const struct clp_thread *thread; /* a copy: the thread may end before the epoch does */
    uint32_t stratum;
    uint64_t time_ns, number;
    double value, value2;
    double chance; /* that its values were divided by */
    bool certain;
    bool path_known; /* exceptions: the way through the runtime is known now */
    uint16_t flags, count;
    uint16_t text_len[CLP_EVENT_TEXTS];
    uint16_t other_count; /* how many of the frames, at their end, are another thread's */
    const uint64_t *frames;
    const char *texts[CLP_EVENT_TEXTS];
    struct clp_span span; /* that the thread was in; span_id 0: none */
};

int clp_event_members_init(void) CLP_MUST_USE; /* idempotent; 0 or -ENOMEM */
/* Walks the event's stack, takes the runtime's frames off its top, and keeps the rest. NULL when
 * there is no memory left in this epoch (counted). */
struct clp_event_member *clp_event_member_make(struct clp_event *e, uint64_t pass,
                                               const struct clp_events_sink *sink);
/* How many frames on top are the runtime's own: up to the first method that is no helper of the
 * event's, 0 where that would leave nothing. */
uint32_t clp_event_runtime_frames(const struct clp_event *e, const struct clp_walk_frame *f,
                                  uint32_t count);
/* Room for `bytes`, zeroed, for the owner's own lists; lives as long as members do. NULL: none. */
void *clp_event_members_alloc(size_t bytes);
/* Two thirds are used: the epoch should end. The rest is for its events in the ring. */
bool clp_event_members_crowded(void);
/* There might be no room for another one. */
bool clp_event_members_full(void);
void clp_event_members_reset(void);
uint64_t clp_event_members_lost(void);
size_t clp_event_members_bytes(void);

/* Writes it for what it stands for. */
void clp_event_member_write(const struct clp_event_member *m, enum clp_sample_kind kind,
                            double value, double value2, const struct clp_events_sink *sink);
/* Writes values that no stack stands for, under the process. `name`: of an exception's type, or of
 * a class, with its heap as detail; NULL: not known. */
void clp_event_write_unsampled(enum clp_sample_kind kind, const struct clp_event_name *name,
                               double value, double value2, uint64_t time_ns,
                               const struct clp_events_sink *sink);

/* A thread by its number in the kernel; NULL when it is not in the table (any more). */
const struct clp_thread *clp_event_thread_of(int32_t tid);

#endif
