/* Which processes the settings name: targets.include and targets.exclude.
 *
 *     NAME             matches the service, the entry assembly, the command's name or its line
 *     service:NAME     the service only; command:NAME the name or line of the command only
 *     user:NAME        the user that the process runs as, by name or number
 *
 * NAME is a pattern with *, ? and [a-z]. Not thread-safe (the user data base is not). */
#ifndef CLP_AGENT_MATCH_H
#define CLP_AGENT_MATCH_H

#include "config/value.h"
#include "sampler/eventpipe/discover.h"

#include <stdbool.h>

/* The first pattern that matches, or NULL. */
const char *clp_match_any(const struct clp_list *patterns, const struct clp_dotnet *p,
                          const char *service);

#endif
