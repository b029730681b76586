#include "sampler/eventpipe/ipc_call.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

int clp_ipc_call_start(struct clp_ipc_call *c, int dirfd, const char *name,
                       const struct clp_ipc_request *request, uint64_t deadline_ns)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (request->len < CLP_IPC_HEADER_BYTES)
        return -EINVAL;
    int n = snprintf(to.sun_path, sizeof(to.sun_path), "/proc/self/fd/%d/%s", dirfd, name);
    if (n < 0 || (size_t)n >= sizeof(to.sun_path))
        return -ENAMETOOLONG;
    CLP_CLEANUP(clp_cleanup_fd)
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0)
        return -errno;
    *c = (struct clp_ipc_call){
        .fd = CLP_TAKE_FD(fd), .deadline_ns = deadline_ns, .request = request};
    return 0;
}

short clp_ipc_call_events(const struct clp_ipc_call *c)
{
    return c->sent ? POLLIN : POLLOUT;
}

/* A Unix stream socket takes a message of this size whole or not at all; should that ever change,
 * closing is the only way to free the port again. */
static int send_request(struct clp_ipc_call *c)
{
    ssize_t n = send(c->fd, c->request->bytes, c->request->len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return -EAGAIN;
    if (n < 0)
        return errno == EPIPE ? -ECONNRESET : -errno;
    if ((size_t)n != c->request->len)
        return -EIO;
    c->sent = true;
    return 0;
}

/* How many bytes the reply has in all, as far as known: the header first. */
static size_t reply_size(const struct clp_ipc_call *c)
{
    uint16_t size;
    if (c->reply_len < CLP_IPC_HEADER_BYTES)
        return CLP_IPC_HEADER_BYTES;
    memcpy(&size, c->reply + 14, sizeof(size));
    return CLP_MAX(size, CLP_IPC_HEADER_BYTES);
}

static int make_room(struct clp_ipc_call *c, size_t want)
{
    if (want <= c->reply_cap)
        return 0;
    uint8_t *bigger = realloc(c->reply, want);
    if (!bigger)
        return -ENOMEM;
    c->reply = bigger;
    c->reply_cap = want;
    return 0;
}

static int read_reply(struct clp_ipc_call *c)
{
    for (size_t want; c->reply_len < (want = reply_size(c));) {
        int r = make_room(c, want);
        if (r < 0)
            return r;
        ssize_t n = recv(c->fd, c->reply + c->reply_len, want - c->reply_len, MSG_DONTWAIT);
        if (n < 0)
            return errno == EINTR ? -EAGAIN : -errno;
        if (n == 0)
            return -ECONNRESET;
        c->reply_len += (size_t)n;
    }
    return 0;
}

int clp_ipc_call_step(struct clp_ipc_call *c, uint64_t now_ns, struct clp_ipc_reply *ret)
{
    int r = c->sent ? 0 : send_request(c);
    if (r == 0)
        r = read_reply(c);
    if (r == -EAGAIN)
        return now_ns >= c->deadline_ns ? -ETIMEDOUT : -EAGAIN;
    if (r < 0)
        return r;
    return clp_ipc_parse_reply(c->reply, c->reply_len, ret);
}

int clp_ipc_call_run(struct clp_ipc_call *c, struct clp_ipc_reply *ret)
{
    for (;;) {
        uint64_t now = clp_clock_monotonic_ns();
        int r = clp_ipc_call_step(c, now, ret);
        if (r != -EAGAIN)
            return r;
        struct pollfd p = {.fd = c->fd, .events = clp_ipc_call_events(c)};
        uint64_t left_ms = (c->deadline_ns - now) / CLP_NSEC_PER_MSEC + 1;
        (void)poll(&p, 1, (int)CLP_MIN(left_ms, 60000u));
    }
}

int32_t clp_ipc_call_peer(const struct clp_ipc_call *c)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return 0;
    return peer.pid;
}

void clp_ipc_call_done(struct clp_ipc_call *c)
{
    clp_cleanup_fd(&c->fd);
    free(c->reply);
    *c = (struct clp_ipc_call){.fd = -1};
}
