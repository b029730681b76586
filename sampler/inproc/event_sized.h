/* Events that have a size, allocations and waits: the loop's side of threshold sampling, one for
 * both. Loop thread, but for the threshold itself. */
#ifndef CLP_SAMPLER_INPROC_EVENT_SIZED_H
#define CLP_SAMPLER_INPROC_EVENT_SIZED_H

#include "sampler/inproc/estimator.h"
#include "sampler/inproc/event_member.h"

struct clp_event_sized {
    enum clp_sample_kind kind;
    bool counts_follow; /* the count is itself an estimate: it is scaled as the size is */
    struct clp_threshold threshold; /* callbacks offer to it */
    _Atomic uint32_t lost; /* kept by the threshold, but without room; callbacks and loop */
    /* loop */
    struct clp_event_member *members;
    double carried_count, carried_sum;     /* totals that nobody stood for in their epoch */
    double accounted_count, accounted_sum; /* written so far */
    double each; /* of the last epoch: how many kept ones each member that found room stands for */
};

void clp_event_sized_init(struct clp_event_sized *s, enum clp_sample_kind kind, uint32_t target,
                          bool counts_follow);
/* `e` carries its values already divided by its chance. NULL when there was no room. */
struct clp_event_member *clp_event_sized_take(struct clp_event_sized *s, struct clp_event *e,
                                              uint64_t pass, const struct clp_events_sink *sink);
/* Writes the members, scaled to the exact totals of the epoch, whose length was `share` of the
 * usual one. */
void clp_event_sized_settle(struct clp_event_sized *s, uint64_t now_ns, double share, bool flush,
                            const struct clp_events_sink *sink);

extern struct clp_event_sized clp_event_allocs, clp_event_locks;
/* Waits that are still open: written up to now. */
void clp_event_locks_open(uint64_t now_ns, uint64_t pass, const struct clp_events_sink *sink);

#endif
