/* What an event tells of itself, as labels of a profile's sample: its texts and number by the
 * table of types (agent/types.c), and the stack of who held the lock. Loop of the agent. */
#ifndef CLP_AGENT_EVENT_LABELS_H
#define CLP_AGENT_EVENT_LABELS_H

#include "agent/definitions.h"
#include "agent/owner_text.h"
#include "agent/types.h"
#include "pprof/profile.h"
#include "wire/reader.h"

#define CLP_EVENT_LABELS_MAX (CLP_EVENT_TEXTS + 2)

/* What labels point to: lives as long as they are used. */
struct clp_event_label_texts {
    char classes[CLP_EVENT_TEXTS][CLP_NAME_MAX];
    char number[24];
    char owner[CLP_OWNER_TEXT_MAX];
};

/* How many of `ret`, which has room for CLP_EVENT_LABELS_MAX, were filled. Labels point into
 * `record` and `texts`. */
size_t clp_event_labels(struct clp_definitions *defs, const struct clp_type_info *info,
                        const struct clp_reader_record *record, struct clp_event_label_texts *texts,
                        struct clp_profile_label *ret);

#endif
