/* Profiles on their way out: for each destination a queue in memory and a thread of its own, so
 * that a slow intake delays neither the rings nor the other destinations.
 *
 * A failure that may pass is tried again with growing pauses; what an intake will never take is
 * dropped and told in the log once. A queue holds CLP_OUTBOX_BYTES; beyond that its oldest profile
 * goes. */
#ifndef CLP_AGENT_OUTBOX_H
#define CLP_AGENT_OUTBOX_H

#include "agent/fault.h"
#include "base/core/core.h"
#include "config/config.h"
#include "uploader/uploader.h"

#define CLP_OUTBOX_BYTES (8u << 20)

struct clp_outbox;

/* The destinations of a configuration. 0, or a fault. */
int clp_outbox_new(const struct clp_config *config, struct clp_outbox **ret,
                   struct clp_fault *fault) CLP_MUST_USE;
/* Copies the item into every queue. What does not fit is told in the log. */
void clp_outbox_put(struct clp_outbox *o, const struct clp_upload_item *item);
/* Tries what is left once more until the deadline (CLOCK_MONOTONIC), writes the rest below
 * spool.dir, ends the threads. Accepts NULL; returns NULL. */
struct clp_outbox *clp_outbox_free(struct clp_outbox *o, uint64_t deadline_ns);

#endif
