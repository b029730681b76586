/* The table of numbers.def, and what is written from it: JSON members, metrics in Prometheus' text
 * format, an explanation of each. Pure; one thread. */
#ifndef CLP_AGENT_NUMBERS_H
#define CLP_AGENT_NUMBERS_H

#include "agent/status.h"
#include "base/strbuf.h"
#include "wire/wire.h"

#include <stdbool.h>

enum clp_number_scope { CLP_NUMBER_AGENT, CLP_NUMBER_TARGET, CLP_NUMBER_UPLOAD };

/* Of whom: `s` always, the others in their scopes. */
struct clp_subject {
    const struct clp_status *s;
    const struct clp_member *m;
    const struct clp_outbox_lane *l;
};

/* ,"key":value for each number of the scope. */
void clp_numbers_json(enum clp_number_scope scope, const struct clp_subject *of,
                      struct clp_strbuf *to);
/* Everything in Prometheus' text format 0.0.4. */
void clp_numbers_metrics(const struct clp_status *s, struct clp_strbuf *to);
/* "  METRIC  what it means" lines under a headline for each scope. */
void clp_numbers_explain(struct clp_strbuf *to);

/* Whether a counter of the library is a state of now, not a sum. */
bool clp_counter_is_state(unsigned counter);

#endif
