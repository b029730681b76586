#include "sampler/eventpipe/stream.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

struct clp_stream_port clp_stream_port_of(const struct clp_dotnet *d)
{
    struct clp_stream_port p = {.dir_fd = d->temp_fd, .runtime_major = d->info.major};
    snprintf(p.name, sizeof(p.name), "%s", d->socket_name);
    return p;
}

void clp_stream_init(struct clp_stream *s, const struct clp_stream_port *port)
{
    *s = (struct clp_stream){.port = *port, .fd = -1, .call = {.fd = -1}};
}

void clp_stream_close(struct clp_stream *s)
{
    clp_cleanup_fd(&s->fd);
    s->fd = -1;
    clp_ipc_call_done(&s->call);
    s->state = CLP_STREAM_CLOSED;
}

/* ---- opening ------------------------------------------------------------------------------- */

int clp_stream_open(struct clp_stream *s, const struct clp_ipc_collect *c, uint64_t now_ns)
{
    int r = clp_ipc_encode_collect(&s->request, s->port.runtime_major, c);
    s->hresult = 0;
    s->gave_up = false;
    if (r == 0)
        r = clp_ipc_call_start(&s->call, s->port.dir_fd, s->port.name, &s->request,
                               now_ns + CLP_STREAM_OPEN_NS);
    if (r == 0)
        s->state = CLP_STREAM_OPENING;
    return r;
}

static int take_reply(struct clp_stream *s, const struct clp_ipc_reply *reply)
{
    if (!reply->ok) {
        if (clp_ipc_parse_hresult(reply, &s->hresult) < 0)
            return -EPROTO;
        return -EREMOTEIO;
    }
    return clp_ipc_parse_session(reply, &s->id);
}

int clp_stream_opened(struct clp_stream *s, uint64_t now_ns)
{
    struct clp_ipc_reply reply;
    int r = clp_ipc_call_step(&s->call, now_ns, &reply);
    if (r == -EAGAIN)
        return r;
    if (r == 0)
        r = take_reply(s, &reply);
    if (r < 0) {
        clp_stream_close(s);
        return r;
    }
    /* The connection goes on as the stream; the call has read its reply and not a byte more. */
    s->fd = s->call.fd;
    s->call.fd = -1;
    clp_ipc_call_done(&s->call);
    s->state = CLP_STREAM_LIVE;
    return 0;
}

/* ---- reading and stopping ------------------------------------------------------------------ */

int64_t clp_stream_read(struct clp_stream *s, void *buf, size_t cap)
{
    if (s->fd < 0)
        return 0;
    ssize_t n = recv(s->fd, buf, cap, MSG_DONTWAIT);
    if (n > 0)
        return n;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return -EAGAIN;
    int r = n < 0 && errno != ECONNRESET ? -errno : 0; /* a killed target resets */
    clp_cleanup_fd(&s->fd);
    s->fd = -1;
    if (s->state != CLP_STREAM_STOPPING)
        clp_stream_close(s);
    return r;
}

void clp_stream_stop(struct clp_stream *s, uint64_t now_ns)
{
    if (s->state != CLP_STREAM_LIVE)
        return;
    clp_ipc_encode_stop(&s->request, s->id);
    s->stop_until_ns = now_ns + CLP_STREAM_STOP_NS;
    s->state = CLP_STREAM_STOPPING;
    if (clp_ipc_call_start(&s->call, s->port.dir_fd, s->port.name, &s->request, s->stop_until_ns) <
        0)
        clp_stream_close(s);
}

void clp_stream_step(struct clp_stream *s, uint64_t now_ns)
{
    struct clp_ipc_reply reply;
    if (s->state != CLP_STREAM_STOPPING)
        return;
    if (s->call.fd >= 0 && clp_ipc_call_step(&s->call, now_ns, &reply) != -EAGAIN)
        clp_ipc_call_done(&s->call); /* whatever it said: the stream's end is the answer */
    bool over = s->fd < 0 && s->call.fd < 0;
    s->gave_up = !over && now_ns >= s->stop_until_ns;
    if (over || s->gave_up)
        clp_stream_close(s);
}

nfds_t clp_stream_fds(const struct clp_stream *s, struct pollfd *fds)
{
    nfds_t n = 0;
    if (s->fd >= 0)
        fds[n++] = (struct pollfd){.fd = s->fd, .events = POLLIN};
    if (s->call.fd >= 0)
        fds[n++] = (struct pollfd){.fd = s->call.fd, .events = clp_ipc_call_events(&s->call)};
    return n;
}

int clp_stream_stop_left(const struct clp_stream_port *port, uint64_t id, uint64_t patience_ns)
{
    struct clp_ipc_request request;
    struct clp_ipc_call call;
    struct clp_ipc_reply reply;
    clp_ipc_encode_stop(&request, id);
    int r = clp_ipc_call_start(&call, port->dir_fd, port->name, &request,
                               clp_clock_monotonic_ns() + patience_ns);
    if (r < 0)
        return r;
    r = clp_ipc_call_run(&call, &reply);
    clp_ipc_call_done(&call);
    return r;
}
