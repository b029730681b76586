#include "agent/status_socket.h"

#include "agent/listener.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#define QUESTION_BYTES 16

struct client {
    int fd; /* -1: free */
    uint64_t until_ns;
    char question[QUESTION_BYTES];
    size_t asked; /* bytes of it */
    bool answering;
    struct clp_strbuf answer;
    size_t sent;
};

struct clp_status_socket {
    struct clp_listener listener;
    clp_status_answer *answer;
    void *context;
    struct client clients[CLP_STATUS_CLIENTS];
};

/* ---- life ---------------------------------------------------------------------------------- */

int clp_status_listen(const char *state_dir, clp_status_answer *answer, void *context,
                      struct clp_status_socket **ret, struct clp_fault *fault)
{
    struct clp_status_socket *s = calloc(1, sizeof(*s));
    if (!s)
        return clp_fault_set(fault, -ENOMEM, "out of memory");
    s->answer = answer;
    s->context = context;
    s->listener = (struct clp_listener)CLP_LISTENER_NONE;
    for (size_t i = 0; i < CLP_STATUS_CLIENTS; i++)
        s->clients[i].fd = -1;
    int r = clp_listener_open(&s->listener, state_dir, CLP_STATUS_SOCKET_NAME, 0660,
                              CLP_STATUS_CLIENTS);
    if (r == 0) {
        *ret = s;
        return 0;
    }
    clp_status_close(s);
    if (r == -EADDRINUSE)
        return clp_fault_set(fault, r,
                             "another agent runs with the state directory %.300s; stop it, or set "
                             "another state.dir",
                             state_dir);
    return clp_fault_set(fault, r, "cannot make the socket for `clrpulse status` in %.300s: %s",
                         state_dir, strerror(-r));
}

static void drop(struct client *c)
{
    clp_cleanup_fd(&c->fd);
    if (c->answering)
        clp_strbuf_done(&c->answer);
    *c = (struct client){.fd = -1};
}

struct clp_status_socket *clp_status_close(struct clp_status_socket *s)
{
    if (!s)
        return NULL;
    for (size_t i = 0; i < CLP_STATUS_CLIENTS; i++)
        drop(&s->clients[i]);
    clp_listener_close(&s->listener);
    free(s);
    return NULL;
}

/* ---- clients ------------------------------------------------------------------------------- */

size_t clp_status_fds(const struct clp_status_socket *s, struct pollfd *ret)
{
    size_t n = 0;
    if (!s)
        return 0;
    for (size_t i = 0; i < CLP_STATUS_CLIENTS; i++)
        if (s->clients[i].fd >= 0)
            ret[n++] = (struct pollfd){.fd = s->clients[i].fd,
                                       .events = s->clients[i].answering ? POLLOUT : POLLIN};
    /* With all places taken a newcomer stays where it is, and poll would never sleep. */
    if (n < CLP_STATUS_CLIENTS)
        ret[n++] = (struct pollfd){.fd = clp_listener_fd(&s->listener), .events = POLLIN};
    return n;
}

static void take_clients(struct clp_status_socket *s, uint64_t now_ns)
{
    for (size_t i = 0; i < CLP_STATUS_CLIENTS; i++) {
        struct client *c = &s->clients[i];
        if (c->fd >= 0)
            continue;
        int fd = clp_listener_accept(&s->listener);
        if (fd < 0)
            return;
        c->fd = fd;
        c->until_ns = now_ns + CLP_STATUS_CLIENT_NS;
    }
}

static void begin_answer(struct clp_status_socket *s, struct client *c)
{
    c->answering = true;
    clp_strbuf_init(&c->answer, CLP_STATUS_MAX_BYTES);
    s->answer(s->context, c->question, &c->answer);
    if (clp_strbuf_error(&c->answer) < 0)
        drop(c);
}

static void read_question(struct clp_status_socket *s, struct client *c)
{
    ssize_t n = recv(c->fd, c->question + c->asked, sizeof(c->question) - 1 - c->asked, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        c->asked += (size_t)n;
    char *end = strchr(c->question, '\n');
    if (end) {
        *end = '\0';
        begin_answer(s, c);
    } else if (n <= 0 || c->asked == sizeof(c->question) - 1) {
        drop(c);
    }
}

static void send_answer(struct client *c)
{
    const char *text = clp_strbuf_text(&c->answer);
    ssize_t n = send(c->fd, text + c->sent, c->answer.len - c->sent, MSG_NOSIGNAL);
    if (n > 0)
        c->sent += (size_t)n;
    if (c->sent == c->answer.len || (n < 0 && errno != EAGAIN && errno != EINTR))
        drop(c);
}

void clp_status_step(struct clp_status_socket *s, uint64_t now_ns)
{
    if (!s)
        return;
    take_clients(s, now_ns);
    for (size_t i = 0; i < CLP_STATUS_CLIENTS; i++) {
        struct client *c = &s->clients[i];
        if (c->fd >= 0 && !c->answering)
            read_question(s, c);
        if (c->fd >= 0 && c->answering)
            send_answer(c);
        if (c->fd >= 0 && now_ns >= c->until_ns)
            drop(c);
    }
}

/* ---- the other side ------------------------------------------------------------------------ */

/* To the end, to the ceiling, or until somebody has trickled for too long. */
static int read_all(int fd, uint64_t until_ns, struct clp_strbuf *to)
{
    char buf[16384];
    ssize_t n;
    while ((n = recv(fd, buf, sizeof(buf), 0)) > 0) {
        clp_strbuf_add(to, buf, (size_t)n);
        if (clp_strbuf_error(to) < 0)
            return clp_strbuf_error(to);
        if (clp_clock_monotonic_ns() >= until_ns)
            return -ETIMEDOUT;
    }
    if (n < 0)
        return errno == EAGAIN ? -ETIMEDOUT : -errno;
    return to->len == 0 ? -ECONNRESET : 0;
}

static int connect_to(const char *state_dir, int *ret_fd)
{
    struct timeval patience = {.tv_sec = CLP_STATUS_CLIENT_NS / CLP_NSEC_PER_SEC};
    struct sockaddr_un a;
    CLP_CLEANUP(clp_cleanup_fd) int dir_fd = open(state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    CLP_CLEANUP(clp_cleanup_fd) int fd = -1;
    if (dir_fd < 0)
        return -errno;
    int r = clp_listener_address(dir_fd, CLP_STATUS_SOCKET_NAME, &a);
    if (r < 0)
        return r;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0 ||
        connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0)
        return -errno;
    *ret_fd = CLP_TAKE_FD(fd);
    return 0;
}

int clp_status_ask(const char *state_dir, const char *question, char **ret)
{
    CLP_CLEANUP(clp_cleanup_fd) int fd = -1;
    CLP_CLEANUP(clp_strbuf_done) struct clp_strbuf answer;
    char line[QUESTION_BYTES];
    clp_strbuf_init(&answer, CLP_STATUS_MAX_BYTES);
    int n = snprintf(line, sizeof(line), "%s\n", question);
    if (n < 0 || (size_t)n >= sizeof(line))
        return -EINVAL;
    int r = connect_to(state_dir, &fd);
    if (r < 0)
        return r;
    if (send(fd, line, (size_t)n, MSG_NOSIGNAL) != n) /* fits a socket's buffer */
        return -errno;
    r = read_all(fd, clp_clock_monotonic_ns() + CLP_STATUS_CLIENT_NS, &answer);
    return r < 0 ? r : clp_strbuf_take(&answer, ret, NULL);
}
