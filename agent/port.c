#include "agent/port.h"

#include "agent/listener.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "sampler/eventpipe/ipc.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

/* "ADVR_V1\0", the instance's cookie, its pid, two reserved bytes. */
#define ADVERTISE_BYTES 34
#define ADVERTISE_COOKIE 8
#define BACKLOG 512
#define PATIENCE_NS (5 * CLP_NSEC_PER_SEC) /* for a peer to say who it is, or to answer */

enum stage {
    FREE,
    GREETING, /* the advertisement is being read */
    RESUMED,  /* the command is sent; the answer, then the end, will come */
    WAITING,  /* let go before; the connection is kept */
};

struct connection {
    enum stage stage;
    int fd;
    uint64_t number; /* in the order of coming */
    uint64_t until_ns;
    uint8_t greeting[ADVERTISE_BYTES];
    size_t len;
};

struct clp_port {
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    struct clp_listener listener;
    int stop_fd, news_fd;
    pthread_t thread;
    bool running;
    struct clp_ipc_request resume;
    _Atomic uint64_t resumed, waiting, refused;
    /* The thread's own. */
    struct connection connections[CLP_PORT_CONNECTIONS];
    uint64_t accepted;
    uint8_t known[CLP_PORT_CONNECTIONS][CLP_GUID_BYTES]; /* cookies, a ring */
    uint64_t known_count;                                /* ever */
    struct pollfd fds[2 + CLP_PORT_CONNECTIONS];
};

/* ---- connections --------------------------------------------------------------------------- */

static void drop(struct connection *c)
{
    clp_cleanup_fd(&c->fd);
    *c = (struct connection){.fd = -1};
}

static bool is_known(const struct clp_port *p, const uint8_t *cookie)
{
    for (size_t i = 0; i < CLP_MIN(p->known_count, CLP_PORT_CONNECTIONS); i++)
        if (memcmp(p->known[i], cookie, CLP_GUID_BYTES) == 0)
            return true;
    return false;
}

static void remember(struct clp_port *p, const uint8_t *cookie)
{
    memcpy(p->known[p->known_count++ % CLP_PORT_CONNECTIONS], cookie, CLP_GUID_BYTES);
}

/* Whole or not at all: half a command would hold the runtime's port for ever. */
static void resume(struct clp_port *p, struct connection *c, uint64_t now_ns)
{
    ssize_t n = send(c->fd, p->resume.bytes, p->resume.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n != (ssize_t)p->resume.len) {
        drop(c);
        return;
    }
    remember(p, c->greeting + ADVERTISE_COOKIE);
    c->stage = RESUMED;
    c->until_ns = now_ns + PATIENCE_NS;
    atomic_fetch_add(&p->resumed, 1);
    (void)!write(p->news_fd, &(uint64_t){1}, sizeof(uint64_t));
}

static void greet(struct clp_port *p, struct connection *c, uint64_t now_ns)
{
    ssize_t n = recv(c->fd, c->greeting + c->len, sizeof(c->greeting) - c->len, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    c->len += n > 0 ? (size_t)n : 0;
    if (n <= 0 || memcmp(c->greeting, "ADVR_V1", CLP_MIN(c->len, 8u)) != 0) {
        drop(c);
        return;
    }
    if (c->len < sizeof(c->greeting))
        return;
    if (is_known(p, c->greeting + ADVERTISE_COOKIE)) {
        c->stage = WAITING;
        c->until_ns = UINT64_MAX;
    } else {
        resume(p, c, now_ns);
    }
}

/* What comes is the answer; nothing in it matters, it has been let go. */
static void listen_on(struct connection *c)
{
    uint8_t buf[256];
    ssize_t n = recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) ||
        (n > 0 && c->stage == RESUMED)) /* ends this connection; the runtime makes another */
        drop(c);
}

static void step(struct clp_port *p, struct connection *c, uint64_t now_ns)
{
    if (c->stage == GREETING)
        greet(p, c, now_ns);
    else
        listen_on(c);
    if (c->stage != FREE && now_ns >= c->until_ns)
        drop(c);
}

/* A place for a newcomer. One that waits to be let go speaks at once, so with all places taken the
 * one that came first gives way: a runtime that has been let go connects anew, and a peer that
 * holds places keeps nobody from being let go. */
static struct connection *make_room(struct clp_port *p)
{
    struct connection *first = &p->connections[0];
    for (size_t i = 0; i < CLP_PORT_CONNECTIONS; i++) {
        struct connection *c = &p->connections[i];
        if (c->stage == FREE)
            return c;
        if (c->number < first->number)
            first = c;
    }
    atomic_fetch_add(&p->refused, 1);
    drop(first);
    return first;
}

/* Not more at once than half the places: those that came are listened to before they give way. */
static void accept_some(struct clp_port *p, uint64_t now_ns)
{
    for (size_t i = 0; i < CLP_PORT_CONNECTIONS / 2; i++) {
        int fd = clp_listener_accept(&p->listener);
        if (fd < 0)
            return;
        struct connection *c = make_room(p);
        *c = (struct connection){
            .stage = GREETING, .fd = fd, .number = p->accepted++, .until_ns = now_ns + PATIENCE_NS};
        greet(p, c, now_ns); /* it has usually spoken already */
    }
}

/* ---- the thread ---------------------------------------------------------------------------- */

static nfds_t fill_fds(struct clp_port *p, bool *ret_hurry)
{
    nfds_t n = 0;
    p->fds[n++] = (struct pollfd){.fd = p->stop_fd, .events = POLLIN};
    p->fds[n++] = (struct pollfd){.fd = clp_listener_fd(&p->listener), .events = POLLIN};
    *ret_hurry = p->fds[1].fd < 0;
    uint64_t waiting = 0;
    for (size_t i = 0; i < CLP_PORT_CONNECTIONS; i++) {
        const struct connection *c = &p->connections[i];
        if (c->stage == FREE)
            continue;
        waiting += c->stage == WAITING;
        *ret_hurry |= c->stage != WAITING;
        p->fds[n++] = (struct pollfd){.fd = c->fd, .events = POLLIN};
    }
    atomic_store(&p->waiting, waiting);
    return n;
}

static void *serve(void *context)
{
    struct clp_port *p = context;
    for (;;) {
        bool hurry; /* a peer's patience may end, or the want of descriptors */
        nfds_t n = fill_fds(p, &hurry);
        (void)poll(p->fds, n, hurry ? 1000 : -1);
        if (p->fds[0].revents)
            return NULL;
        uint64_t now_ns = clp_clock_monotonic_ns();
        for (size_t i = 0; i < CLP_PORT_CONNECTIONS; i++)
            if (p->connections[i].stage != FREE)
                step(p, &p->connections[i], now_ns);
        accept_some(p, now_ns);
    }
}

/* ---- life ---------------------------------------------------------------------------------- */

/* The socket of p->path. */
static int listen_there(struct clp_port *p)
{
    char dir[sizeof(p->path)] = ".";
    char *slash = strrchr(p->path, '/');
    if (slash) /* "/" keeps its own */
        snprintf(dir, sizeof(dir), "%.*s", (int)CLP_MAX(slash - p->path, 1), p->path);
    return clp_listener_open(&p->listener, dir, slash ? slash + 1 : p->path,
                             0666, /* the directory decides who may; targets run as any user */
                             BACKLOG);
}

static int start(struct clp_port *p, const char *path)
{
    int n = snprintf(p->path, sizeof(p->path), "%s", path);
    if ((size_t)n >= sizeof(p->path)) /* no runtime could connect to it */
        return -ENAMETOOLONG;
    int r = listen_there(p);
    if (r < 0)
        return r;
    p->stop_fd = eventfd(0, EFD_CLOEXEC);
    p->news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->stop_fd < 0 || p->news_fd < 0)
        return -errno;
    clp_ipc_encode_resume(&p->resume);
    r = -pthread_create(&p->thread, NULL, serve, p);
    p->running = r == 0;
    return r;
}

int clp_port_start(const char *path, struct clp_port **ret, struct clp_fault *fault)
{
    struct clp_port *p = calloc(1, sizeof(*p));
    if (!p)
        return clp_fault_set(fault, -ENOMEM, "out of memory");
    p->listener = (struct clp_listener)CLP_LISTENER_NONE;
    p->stop_fd = p->news_fd = -1;
    for (size_t i = 0; i < CLP_PORT_CONNECTIONS; i++)
        p->connections[i].fd = -1;
    int r = start(p, path);
    if (r == 0) {
        *ret = p;
        return 0;
    }
    clp_port_stop(p);
    if (r == -EADDRINUSE)
        return clp_fault_set(
            fault, r,
            "somebody listens on %s already (targets.diagnostic_port); stop it, or "
            "set another path",
            path);
    return clp_fault_set(fault, r, "cannot listen on %s (targets.diagnostic_port): %s", path,
                         strerror(-r));
}

struct clp_port *clp_port_stop(struct clp_port *p)
{
    if (!p)
        return NULL;
    if (p->running) {
        (void)!write(p->stop_fd, &(uint64_t){1}, sizeof(uint64_t));
        (void)pthread_join(p->thread, NULL);
    }
    for (size_t i = 0; i < CLP_PORT_CONNECTIONS; i++)
        if (p->connections[i].stage != FREE)
            drop(&p->connections[i]);
    clp_listener_close(&p->listener);
    clp_cleanup_fd(&p->stop_fd);
    clp_cleanup_fd(&p->news_fd);
    free(p);
    return NULL;
}

int clp_port_fd(const struct clp_port *p)
{
    return p ? p->news_fd : -1;
}

bool clp_port_take(struct clp_port *p)
{
    uint64_t n;
    return p && read(p->news_fd, &n, sizeof(n)) == sizeof(n);
}

void clp_port_get_counts(const struct clp_port *p, struct clp_port_counts *ret)
{
    *ret = (struct clp_port_counts){0};
    if (!p)
        return;
    ret->resumed = atomic_load(&p->resumed);
    ret->waiting = atomic_load(&p->waiting);
    ret->refused = atomic_load(&p->refused);
}
