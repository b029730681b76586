/* What the owner of a lock did, as the text of a label. */
#ifndef CLP_AGENT_OWNER_TEXT_H
#define CLP_AGENT_OWNER_TEXT_H

#include "agent/definitions.h"

#define CLP_OWNER_TEXT_MAX 1024u

/* Names of the managed ones among `frames`, from the leaf on, with "; " between them; those that
 * do not fit are left out as a whole, and "..." stands for them. "" where nothing is known. */
void clp_owner_text(const struct clp_definitions *d, const uint64_t *frames, uint32_t count,
                    char ret[CLP_OWNER_TEXT_MAX]);

#endif
