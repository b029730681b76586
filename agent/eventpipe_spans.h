/* Which request an event belongs to: activities as the runtime's streams tell them.
 *
 * With the keyword TasksFlowActivityIds of the task library's event source on, every event of a
 * thread carries the id of the activity it runs in, across awaits; an ActivityStart of
 * DiagnosticSource says which span of which trace has that id. The two come in streams of their
 * own, so an id is noted when an event brings it, and asked for its span when the event gets its
 * place. Samples of the runtime's sampler carry no id.
 *
 * One owner; not thread-safe. */
#ifndef CLP_AGENT_EVENTPIPE_SPANS_H
#define CLP_AGENT_EVENTPIPE_SPANS_H

#include "agent/span_labels.h"
#include "base/index.h"
#include "sampler/nettrace/nettrace.h"

#include <stdbool.h>

#define CLP_EPB_ACTIVITIES_MAX (1u << 16)
#define CLP_EPB_NO_ACTIVITY 0u

struct clp_epb_activity {
    uint8_t id[CLP_NETTRACE_GUID_BYTES];
    struct clp_def_span span; /* span_id 0: not told */
    bool ended;
};

struct clp_epb_spans {
    struct clp_epb_activity *items;
    uint32_t count, cap;
    struct clp_index index;
};

void clp_epb_spans_init(struct clp_epb_spans *s);
void clp_epb_spans_done(struct clp_epb_spans *s);
/* The number of an id, from 1; CLP_EPB_NO_ACTIVITY for the zero id, and beyond the ceiling. */
uint32_t clp_epb_spans_note(struct clp_epb_spans *s, const uint8_t *id);
/* The number here of what `from` knows as `activity`, with its span. */
uint32_t clp_epb_spans_copy(struct clp_epb_spans *s, const struct clp_epb_spans *from,
                            uint32_t activity);
/* ActivityStart and ActivityStop; others do nothing. */
void clp_epb_spans_event(struct clp_epb_spans *s, const struct clp_nettrace_event *e);
/* NULL when nothing is known of it. */
const struct clp_def_span *clp_epb_spans_of(const struct clp_epb_spans *s, uint32_t activity);

#endif
