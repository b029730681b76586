#include "agent/status_socket.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
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
    int dir_fd, fd;
    clp_status_answer *answer;
    void *context;
    struct client clients[CLP_STATUS_CLIENTS];
};

/* Any length of path: reached through the directory's descriptor. */
static struct sockaddr_un address_in(int dir_fd)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/" CLP_STATUS_SOCKET_NAME, dir_fd);
    return a;
}

static int open_dir(const char *path)
{
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* ---- life ---------------------------------------------------------------------------------- */

static int bind_in(int dir_fd)
{
    struct sockaddr_un a = address_in(dir_fd);
    CLP_CLEANUP(clp_cleanup_fd)
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)&a, sizeof(a)) == 0 || errno == EAGAIN)
        return -EADDRINUSE;
    if (errno == ECONNREFUSED) /* of an agent that was killed */
        (void)unlinkat(dir_fd, CLP_STATUS_SOCKET_NAME, 0);
    clp_cleanup_fd(&fd);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    (void)fchmod(fd, 0660); /* before it can be seen: bind makes the file with this mode */
    if (bind(fd, (const struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, CLP_STATUS_CLIENTS) < 0)
        return -errno;
    return CLP_TAKE_FD(fd);
}

int clp_status_listen(const char *state_dir, clp_status_answer *answer, void *context,
                      struct clp_status_socket **ret, struct clp_fault *fault)
{
    struct clp_status_socket *s = calloc(1, sizeof(*s));
    if (!s)
        return clp_fault_set(fault, -ENOMEM, "out of memory");
    s->answer = answer;
    s->context = context;
    s->fd = -1;
    for (size_t i = 0; i < CLP_STATUS_CLIENTS; i++)
        s->clients[i].fd = -1;
    s->dir_fd = open_dir(state_dir);
    int r = s->dir_fd < 0 ? s->dir_fd : bind_in(s->dir_fd);
    if (r >= 0) {
        s->fd = r;
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
    if (s->fd >= 0)
        (void)unlinkat(s->dir_fd, CLP_STATUS_SOCKET_NAME, 0);
    clp_cleanup_fd(&s->fd);
    clp_cleanup_fd(&s->dir_fd);
    free(s);
    return NULL;
}

/* ---- clients ------------------------------------------------------------------------------- */

size_t clp_status_fds(const struct clp_status_socket *s, struct pollfd *ret)
{
    size_t n = 0;
    if (!s)
        return 0;
    ret[n++] = (struct pollfd){.fd = s->fd, .events = POLLIN};
    for (size_t i = 0; i < CLP_STATUS_CLIENTS; i++)
        if (s->clients[i].fd >= 0)
            ret[n++] = (struct pollfd){.fd = s->clients[i].fd,
                                       .events = s->clients[i].answering ? POLLOUT : POLLIN};
    return n;
}

static void take_clients(struct clp_status_socket *s, uint64_t now_ns)
{
    for (size_t i = 0; i < CLP_STATUS_CLIENTS; i++) {
        struct client *c = &s->clients[i];
        if (c->fd >= 0)
            continue;
        c->fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (c->fd < 0)
            return;
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

static int read_all(int fd, struct clp_strbuf *to)
{
    char buf[16384];
    ssize_t n;
    while ((n = recv(fd, buf, sizeof(buf), 0)) > 0)
        clp_strbuf_add(to, buf, (size_t)n);
    if (n < 0)
        return errno == EAGAIN ? -ETIMEDOUT : -errno;
    return to->len == 0 ? -ECONNRESET : clp_strbuf_error(to);
}

int clp_status_ask(const char *state_dir, const char *question, char **ret)
{
    struct timeval patience = {.tv_sec = CLP_STATUS_CLIENT_NS / CLP_NSEC_PER_SEC};
    CLP_CLEANUP(clp_cleanup_fd) int dir_fd = open_dir(state_dir);
    CLP_CLEANUP(clp_cleanup_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CLP_CLEANUP(clp_strbuf_done) struct clp_strbuf answer;
    char line[QUESTION_BYTES];
    clp_strbuf_init(&answer, CLP_STATUS_MAX_BYTES);
    if (dir_fd < 0)
        return dir_fd;
    struct sockaddr_un a = address_in(dir_fd);
    int n = snprintf(line, sizeof(line), "%s\n", question);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0 ||
        connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0 ||
        send(fd, line, (size_t)n, MSG_NOSIGNAL) != n)
        return -errno;
    int r = read_all(fd, &answer);
    return r < 0 ? r : clp_strbuf_take(&answer, ret, NULL);
}
