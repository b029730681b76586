/* A diagnostic port that runtimes connect to (DOTNET_DiagnosticPorts=PATH in the target).
 *
 * A runtime that was told of such a port waits at its start, unless the owner wrote ",nosuspend",
 * until somebody lets it go.  So a thread of its own answers every newcomer with ResumeRuntime at
 * once, whatever else the agent does; an agent that is started again serves those that wait since.
 * After the answer the runtime connects anew and waits for further commands: that connection is
 * kept, without a word, until the runtime ends. Beyond CLP_PORT_CONNECTIONS the oldest gives way.
 *
 * The directory of the socket decides who may connect. Nothing that a peer sends is believed. */
#ifndef CLP_AGENT_PORT_H
#define CLP_AGENT_PORT_H

#include "agent/fault.h"
#include "base/core/core.h"

#include <stdbool.h>

#define CLP_PORT_CONNECTIONS 1024u

struct clp_port;

struct clp_port_counts {
    uint64_t resumed, waiting; /* let go since the start; connections now */
    uint64_t refused;          /* gave way to a newer one beyond CLP_PORT_CONNECTIONS */
};

/* Makes the socket (one that is left of a dead agent is replaced) and starts the thread. 0, or a
 * fault. */
int clp_port_start(const char *path, struct clp_port **ret, struct clp_fault *fault) CLP_MUST_USE;
/* Removes the socket, ends the thread. Accepts NULL; returns NULL. */
struct clp_port *clp_port_stop(struct clp_port *p);
/* Readable when a runtime was let go since the last clp_port_take; -1 for NULL. */
int clp_port_fd(const struct clp_port *p);
/* Whether there was one. */
bool clp_port_take(struct clp_port *p);
void clp_port_get_counts(const struct clp_port *p, struct clp_port_counts *ret);

#endif
