/* An EventPipe session of a target: opened, read, stopped, closed.
 *
 * The runtime answers a stop only when the session's stream has been drained, and until then it
 * serves nobody else on its port. So the stop goes over a connection of its own, without blocking,
 * while the stream is read on; and a stream that does not end in time is closed, which frees the
 * port as well. A session that is only closed lives in the target until its next event: therefore
 * every session is stopped, and what a killed process left behind is stopped by the next one
 * (journal.h).
 *
 * A stream has one owner, one thread. */
#ifndef CLP_SAMPLER_EVENTPIPE_STREAM_H
#define CLP_SAMPLER_EVENTPIPE_STREAM_H

#include "base/core/core.h"
#include "sampler/eventpipe/discover.h"
#include "sampler/eventpipe/ipc_call.h"

#include <poll.h>

/* First use of a provider may take the runtime most of a second, and a target without a processor
 * much longer. Patience is better than a second try: a request that has been sent is carried out
 * however late, and the session of one that was given up would be nobody's. */
#define CLP_STREAM_OPEN_NS (60 * CLP_NSEC_PER_SEC)
#define CLP_STREAM_SLOW_NS (5 * CLP_NSEC_PER_SEC) /* after this long people want a word */
#define CLP_STREAM_STOP_NS (10 * CLP_NSEC_PER_SEC)
#define CLP_STREAM_FDS 2u

/* Where a target's port is: a copy of what discovery found. */
struct clp_stream_port {
    int dir_fd; /* the caller's, open for the stream's life */
    char name[80];
    unsigned runtime_major;
};
struct clp_stream_port clp_stream_port_of(const struct clp_dotnet *d);

enum clp_stream_state {
    CLP_STREAM_CLOSED,
    CLP_STREAM_OPENING,
    CLP_STREAM_LIVE,
    CLP_STREAM_STOPPING,
};

struct clp_stream {
    struct clp_stream_port port;
    enum clp_stream_state state;
    int fd; /* -1 when closed */
    uint64_t id;
    uint32_t hresult;       /* why the runtime refused, 0 when it did not */
    uint64_t stop_until_ns; /* STOPPING: when patience ends */
    bool gave_up;           /* patience ended before the stream did */
    struct clp_ipc_request request;
    struct clp_ipc_call call; /* the opening or the stop */
};

void clp_stream_init(struct clp_stream *s, const struct clp_stream_port *port);
/* Asks for a session; never blocks. 0 in state OPENING, or as clp_ipc_encode_collect and
 * clp_ipc_call_start. */
int clp_stream_open(struct clp_stream *s, const struct clp_ipc_collect *c,
                    uint64_t now_ns) CLP_MUST_USE;
/* Goes on with the opening. -EAGAIN: wait; 0: LIVE; -EREMOTEIO: the runtime refused (hresult); else
 * as clp_ipc_call_step. Closed after a failure. */
int clp_stream_opened(struct clp_stream *s, uint64_t now_ns) CLP_MUST_USE;
/* Reads what is there. How many bytes; 0 at the stream's end (closed then); -EAGAIN; -errno. */
int64_t clp_stream_read(struct clp_stream *s, void *buf, size_t cap) CLP_MUST_USE;
/* Begins to stop a LIVE one; read on until its end. Where the stop cannot even be sent, the stream
 * is closed. */
void clp_stream_stop(struct clp_stream *s, uint64_t now_ns);
/* Goes on with the stop; closes a stream that has not ended in time. */
void clp_stream_step(struct clp_stream *s, uint64_t now_ns);
/* Descriptors to poll, at most CLP_STREAM_FDS; how many. */
nfds_t clp_stream_fds(const struct clp_stream *s, struct pollfd *fds);
/* Closes at once. */
void clp_stream_close(struct clp_stream *s);

/* Stops a session that somebody left behind; nobody reads it any more. Blocks for
 * `patience_ns` at most. 0 or -errno. */
int clp_stream_stop_left(const struct clp_stream_port *port, uint64_t id,
                         uint64_t patience_ns) CLP_MUST_USE;

#endif
