/* What people write to ask for events: a list of providers, as dotnet-trace takes it.
 *
 *     NAME[:KEYWORDS[:LEVEL[:ARGUMENTS]]],NAME...
 *
 * KEYWORDS are hexadecimal, with or without 0x; none: all of them. LEVEL is 0 to 5, or LogAlways,
 * Critical, Error, Warning, Informational, Verbose; none: 5, as dotnet-trace has it for keywords
 * that are left out. ARGUMENTS are key=value, separated by semicolons; a text in double quotes
 * keeps its commas and semicolons, and the quotes go to the runtime. Pure; thread-safe. */
#ifndef CLP_AGENT_EVENTPIPE_SPEC_H
#define CLP_AGENT_EVENTPIPE_SPEC_H

#include "agent/fault.h"
#include "sampler/eventpipe/ipc.h"

#define CLP_SPEC_BYTES 8192u

struct clp_spec {
    char text[CLP_SPEC_BYTES]; /* the names and arguments of the providers */
    struct clp_ipc_provider providers[CLP_IPC_PROVIDERS_MAX];
    size_t count;
};

/* 0, or -EINVAL with a sentence. *ret must stay where it is: it points into itself. */
int clp_spec_parse(const char *list, struct clp_spec *ret, struct clp_fault *fault) CLP_MUST_USE;

#endif
