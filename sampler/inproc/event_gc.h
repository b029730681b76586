/* The loop's side of collections; events.h has the callback's. Loop thread. */
#ifndef CLP_SAMPLER_INPROC_EVENT_GC_H
#define CLP_SAMPLER_INPROC_EVENT_GC_H

#include "sampler/inproc/event_member.h"

void clp_event_gc_take(struct clp_event *e, uint64_t pass, const struct clp_events_sink *sink);
void clp_event_gc_totals(struct clp_event_totals *ret);
/* Nobody tells of collections any more: what the last one left is news no longer, and what is under
 * way ends unseen. */
void clp_event_gc_forget(void);

#endif
