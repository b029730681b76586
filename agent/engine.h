/* Which engine a process can have, by what can be seen of it from outside: asking the runtime to
 * load a library that it cannot load would leave traces in its log. */
#ifndef CLP_AGENT_ENGINE_H
#define CLP_AGENT_ENGINE_H

#include "base/core/core.h"
#include "sampler/eventpipe/discover.h"

#include <stdbool.h>

/* Whether the library cannot be loaded into a READY process, and its events can be asked for all
 * the same; then the reason, a sentence without its full stop. False also where it cannot be seen:
 * the runtime's answer decides then. Reads its environment and a part of its executable.
 */
bool clp_engine_needs_events(const struct clp_dotnet *d, char *why, size_t cap);

/* Whether the process is compiled ahead of time (NativeAOT): its runtime has a diagnostics port,
 * but no profilers, no method events and no stacks of other events than samples. */
bool clp_engine_is_native_aot(int32_t pid);

#endif
