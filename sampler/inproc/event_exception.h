/* The loop's side of exceptions; events.h has the callback's. Loop thread. */
#ifndef CLP_SAMPLER_INPROC_EVENT_EXCEPTION_H
#define CLP_SAMPLER_INPROC_EVENT_EXCEPTION_H

#include "sampler/inproc/event_member.h"

void clp_event_exception_take(struct clp_event *e, uint64_t pass,
                              const struct clp_events_sink *sink);
void clp_event_exception_settle(uint64_t now_ns, bool flush, const struct clp_events_sink *sink);
void clp_event_exception_totals(struct clp_event_totals *ret);

#endif
