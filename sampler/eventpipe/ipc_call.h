/* One request and its reply over the target's diagnostics socket.
 *
 * The port serves one client at a time: half a request, or a connection that is left open, blocks
 * it for every other tool.  So a request goes out in one piece or the socket is closed at once, and
 * every call has a deadline.
 *
 * A call is a small state machine over a non-blocking socket: a caller with one call runs it with
 * clp_ipc_call_run, a caller with many polls them together. A call has one owner. */
#ifndef CLP_SAMPLER_EVENTPIPE_IPC_CALL_H
#define CLP_SAMPLER_EVENTPIPE_IPC_CALL_H

#include "base/core/core.h"
#include "sampler/eventpipe/ipc.h"

#include <stdbool.h>

struct clp_ipc_call {
    int fd;               /* -1 when none is open */
    uint64_t deadline_ns; /* CLOCK_MONOTONIC */
    bool sent;
    const struct clp_ipc_request *request; /* the caller's, until the call is done */
    uint8_t *reply;                        /* grows to what the reply's header says */
    size_t reply_cap, reply_len;
};

/* Begins a call to the socket `name` in the directory `dirfd` (any length of path: it is reached as
 * /proc/self/fd/N/name). Never blocks. 0 with the call in progress, or -errno of socket and connect
 * with nothing to clean up: -ECONNREFUSED nobody listens (stale), -EACCES, -ENOENT, -EAGAIN the
 * target's queue is full. */
int clp_ipc_call_start(struct clp_ipc_call *c, int dirfd, const char *name,
                       const struct clp_ipc_request *request, uint64_t deadline_ns) CLP_MUST_USE;
/* Which events of c->fd to wait for. */
short clp_ipc_call_events(const struct clp_ipc_call *c);
/* Goes on as far as it can without blocking. -EAGAIN: wait for the events. 0: *ret holds the reply,
 * valid until done. Else the call is over: -ETIMEDOUT, -EPROTO, -ECONNRESET (closed without a
 * reply: the target died, or crashed on it), -EIO (could not be sent whole). */
int clp_ipc_call_step(struct clp_ipc_call *c, uint64_t now_ns,
                      struct clp_ipc_reply *ret) CLP_MUST_USE;
/* Blocks until step answers something other than -EAGAIN. */
int clp_ipc_call_run(struct clp_ipc_call *c, struct clp_ipc_reply *ret) CLP_MUST_USE;
/* The pid of the listener as this process sees it, 0 when it is in no namespace of ours. A hint
 * only.
 */
int32_t clp_ipc_call_peer(const struct clp_ipc_call *c);
void clp_ipc_call_done(struct clp_ipc_call *c);

#endif
