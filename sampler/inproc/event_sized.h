/* Events that have a size, allocations and waits: the loop's side of threshold sampling, one for
 * both. Strata are classes of objects, and locks. Loop thread, but for offers. */
#ifndef CLP_SAMPLER_INPROC_EVENT_SIZED_H
#define CLP_SAMPLER_INPROC_EVENT_SIZED_H

#include "sampler/inproc/control_total.h"
#include "sampler/inproc/event_member.h"

#define CLP_EVENT_STRATA 2048u

/* What of a stratum the loop knows. */
struct clp_event_stratum {
    struct clp_event_scale { /* of its members; of the ends of epochs */
        double certain;      /* values of those that were certain */
        struct clp_threshold_ratio other;
        struct clp_threshold_factors factors;
    } count, sum;
    double carried_count, carried_sum; /* totals that nobody stands for yet */
    uint32_t uncertain;                /* members that were not certain */
};

struct clp_event_sized {
    enum clp_sample_kind kind;
    struct clp_threshold threshold; /* callbacks offer to it */
    struct clp_stratum strata[CLP_EVENT_STRATA];
    _Atomic uint64_t lost; /* kept by the threshold, but without room; callbacks and loop */
    /* loop */
    struct clp_event_stratum of[CLP_EVENT_STRATA];
    bool pools;
    struct clp_event_stratum pool; /* all strata of which few were kept */
    struct clp_event_member *members;
    uint32_t epoch;                        /* of the members */
    double accounted_count, accounted_sum; /* written so far */
    uint64_t lost_before;                  /* this epoch */
    struct clp_control control;            /* of the sum of sizes */
    double each; /* of the last epoch: how many kept ones each member that found room stands for */
};

/* Idempotent. `pools`: sizes within a stratum differ widely, so that where few of it are kept, the
 * split of its exact total among them would be biased (clp_threshold_ratio): then all such strata
 * are scaled together, to the exact total of them all. */
void clp_event_sized_init(struct clp_event_sized *s, enum clp_sample_kind kind, uint32_t target,
                          bool pools);
/* Any thread: what clp_threshold_offer says, as heavy as the ring's pressure allows. */
struct clp_threshold_member clp_event_sized_offer(struct clp_event_sized *s,
                                                  const struct clp_event_here *h, uint64_t key,
                                                  uint64_t count, uint64_t size);
/* What the member's stratum, whose key was offered, is called: event_names.h. Any thread. */
void clp_event_sized_name(struct clp_event_sized *s, const struct clp_threshold_member *m,
                          uint64_t key, const struct clp_event_words *text, uint16_t detail);
/* Notes in the ring's entry whose member it is. */
static inline void clp_event_sized_mark(struct clp_event *e, const struct clp_threshold_member *m)
{
    e->certain = m->chance >= 1;
    e->chance = (float)m->chance;
    e->stratum = m->stratum;
    e->epoch = m->epoch;
}
/* Does it belong to an epoch that is not the members' one yet? */
bool clp_event_sized_is_early(const struct clp_event_sized *s, const struct clp_event *e);
/* `e` carries its values already divided by its chance. NULL when there was no room. */
struct clp_event_member *clp_event_sized_take(struct clp_event_sized *s, struct clp_event *e,
                                              uint64_t pass, const struct clp_events_sink *sink);
/* As clp_threshold_follow. */
void clp_event_sized_follow(struct clp_event_sized *s, double share);
/* New events belong to the next epoch; those of this one are taken next, then it is settled. */
void clp_event_sized_turn(struct clp_event_sized *s);
/* Writes the members, scaled to the exact totals of the epoch, whose length was `share` of the
 * usual one. `total`: what is known of the sum of sizes in the epoch; NULL: what was offered alone.
 */
void clp_event_sized_settle(struct clp_event_sized *s, uint64_t now_ns, double share, bool flush,
                            const struct clp_control_total *total,
                            const struct clp_events_sink *sink);

/* How the runtime samples allocations: before the first of them. */
void clp_event_alloc_begin(uint16_t runtime_major);

extern struct clp_event_sized clp_event_allocs, clp_event_locks, clp_event_handles;
/* Waits of one kind that are still open: written up to now. All members have been written: it gives
 * their memory back. */
void clp_event_waits_open(enum clp_event_wait_kind kind, uint64_t now_ns, uint64_t pass,
                          const struct clp_events_sink *sink);
/* The thread's wait of a kind is no more, or nobody told of its end. Any thread, while no event of
 * the kind is delivered for that thread. */
void clp_event_wait_forget(struct clp_event_thread *t, enum clp_event_wait_kind kind);
/* Of all threads: before a session begins, what was open when the last one ended is forgotten. */
void clp_event_waits_forget(enum clp_event_wait_kind kind);
size_t clp_event_waits_bytes(void); /* any thread */

#endif
