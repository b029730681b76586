/* The socket over which a running agent tells what it does: one line in ("text", "json", "audit",
 * "pid N"), the answer out, end.
 *
 * It lies in the state directory, for the agent's user and group; a second agent with the same
 * state directory finds it in use and does not start.  Nothing here blocks: the owner polls the
 * descriptors and calls step. A client that is slow or silent is dropped after a few seconds. */
#ifndef CLP_AGENT_STATUS_SOCKET_H
#define CLP_AGENT_STATUS_SOCKET_H

#include "agent/fault.h"
#include "base/core/core.h"
#include "base/strbuf.h"

#include <poll.h>
#include <stdbool.h>

#define CLP_STATUS_SOCKET_NAME "agent.sock"
#define CLP_STATUS_CLIENTS 8u
#define CLP_STATUS_FDS (1 + CLP_STATUS_CLIENTS)
#define CLP_STATUS_MAX_BYTES (4u << 20)
#define CLP_STATUS_CLIENT_NS (5 * CLP_NSEC_PER_SEC)

struct clp_status_socket;

/* Writes the answer to `question`. */
typedef void clp_status_answer(void *context, const char *question, struct clp_strbuf *ret);

/* The directory must exist. 0; -EADDRINUSE: an agent answers there; or another fault. */
int clp_status_listen(const char *state_dir, clp_status_answer *answer, void *context,
                      struct clp_status_socket **ret, struct clp_fault *fault) CLP_MUST_USE;
/* Removes the socket. Accepts NULL; returns NULL. */
struct clp_status_socket *clp_status_close(struct clp_status_socket *s);
/* Descriptors to poll, at most CLP_STATUS_FDS; the number of them. NULL has none. */
size_t clp_status_fds(const struct clp_status_socket *s, struct pollfd *ret);
/* To be called about once a second also when none of them has anything to tell: while there is no
 * place or no descriptor for another client, the listening one is not among them. */
void clp_status_step(struct clp_status_socket *s, uint64_t now_ns);

/* The other side: asks and waits, a few seconds at most. The answer in *ret (free). 0, -ENOENT or
 * -ECONNREFUSED (no agent there), -EACCES, -ETIMEDOUT, -ENOBUFS (more than CLP_STATUS_MAX_BYTES),
 * -EINVAL (no question is that long)... */
int clp_status_ask(const char *state_dir, const char *question, char **ret) CLP_MUST_USE;

#endif
