#include "tests/unit/receiver.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAIT_MS 20000

/* Waits until `fd` can be read, or the test wants the end, or too long. Only the first is true. */
static bool readable(const struct receiver *r, int fd, int timeout_ms)
{
    struct pollfd fds[] = {{.fd = r->stop_fds[0], .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    return poll(fds, fd < 0 ? 1 : 2, timeout_ms) > 0 && fds[0].revents == 0;
}

static size_t read_head(struct receiver *r, int fd)
{
    size_t len = 0;
    while (len < sizeof(r->head) - 1 && readable(r, fd, WAIT_MS)) {
        if (read(fd, r->head + len, 1) != 1)
            return 0;
        r->head[++len] = '\0';
        if (len >= 4 && memcmp(r->head + len - 4, "\r\n\r\n", 4) == 0)
            return len;
    }
    return 0;
}

static void read_body(struct receiver *r, int fd)
{
    const char *length = receiver_header(r, "Content-Length");
    size_t want = length ? (size_t)strtoul(length, NULL, 10) : 0;
    r->body_len = 0;
    while (r->body_len < want && want <= sizeof(r->body) && readable(r, fd, WAIT_MS)) {
        ssize_t n = read(fd, r->body + r->body_len, want - r->body_len);
        if (n <= 0)
            return;
        r->body_len += (size_t)n;
    }
}

static void send_reply(const struct receiver *r, const char *reply, int fd)
{
    size_t len = r->reply_len ? r->reply_len : strlen(reply);
    size_t step = r->drip_ms ? 1 : len;
    for (size_t at = 0; at < len; at += step) {
        if (r->drip_ms &&
            poll(&(struct pollfd){.fd = r->stop_fds[0], .events = POLLIN}, 1, (int)r->drip_ms) > 0)
            return;
        if (send(fd, reply + at, step, MSG_NOSIGNAL) < 0)
            return;
    }
}

static void serve(struct receiver *r, int fd)
{
    r->connections++;
    while (read_head(r, fd) > 0) {
        r->requests++;
        if (!r->ignore_body)
            read_body(r, fd);
        const char *reply = r->choose ? r->choose(r) : r->reply;
        if (reply)
            send_reply(r, reply, fd);
        else
            (void)readable(r, -1, WAIT_MS);
        if (r->ignore_body || !reply)
            return;
    }
}

static void *run(void *context)
{
    struct receiver *r = context;
    while (readable(r, r->listen_fd, WAIT_MS)) {
        int fd = accept(r->listen_fd, NULL, NULL);
        if (fd < 0)
            break;
        serve(r, fd);
        (void)close(fd);
    }
    return NULL;
}

int receiver_start(struct receiver *r)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    r->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (r->listen_fd < 0 || bind(r->listen_fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
        listen(r->listen_fd, 8) < 0 || getsockname(r->listen_fd, (struct sockaddr *)&a, &len) < 0 ||
        pipe(r->stop_fds) < 0)
        return -1;
    r->port = ntohs(a.sin_port);
    return pthread_create(&r->thread, NULL, run, r) == 0 ? 0 : -1;
}

void receiver_stop(struct receiver *r)
{
    (void)close(r->stop_fds[1]); /* the other end becomes readable */
    (void)pthread_join(r->thread, NULL);
    (void)close(r->stop_fds[0]);
    (void)close(r->listen_fd);
}

const char *receiver_header(const struct receiver *r, const char *name)
{
    static char value[512];
    size_t len = strlen(name);
    for (const char *line = r->head; (line = strstr(line, "\r\n"));) {
        line += 2;
        if (strncasecmp(line, name, len) == 0 && line[len] == ':') {
            const char *v = line + len + 1 + strspn(line + len + 1, " ");
            (void)snprintf(value, sizeof(value), "%.*s", (int)strcspn(v, "\r\n"), v);
            return value;
        }
    }
    return NULL;
}
