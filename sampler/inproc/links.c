#include "sampler/inproc/links.h"

#include "base/core/text.h"
#include "sampler/inproc/probe.h"
#include "wire/memory.h"
#include "wire/message.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define HANDSHAKE_NS (5 * CLP_NSEC_PER_SEC)
#define MESSAGES_A_ROUND 16
#define HIGH_FD 512
#define FDS_MAX 4 /* room for more than the one that we accept, to close what is too much */

#ifndef CLP_VERSION
#define CLP_VERSION "0.1.0"
#endif

static struct clp_link links[CLP_LINKS_MAX];
static struct clp_links_self self;
/* The number of the process's next profile. An agent that is killed leaves it in its memory; the
 * next one finds it in its own (wire.h, next_seq and kept_seq). Of no use to the library. */
static uint64_t kept_seq;

void clp_links_init(const struct clp_links_self *s)
{
    self = *s;
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++)
        if (links[i].state == CLP_LINK_FREE)
            links[i].sock = -1;
}

struct clp_link *clp_links_at(unsigned i)
{
    return &links[i];
}

bool clp_links_any(void)
{
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++)
        if (links[i].state != CLP_LINK_FREE)
            return true;
    return false;
}

/* ---- sending ---- */

static int send_message(int sock, const void *msg, size_t len)
{
    ssize_t n = send(sock, msg, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n == (ssize_t)len ? 0 : n < 0 ? -errno : -EMSGSIZE;
}

static void send_refusal(int sock, uint16_t flags, const char *reason)
{
    struct clp_msg_refused m = {.msg = {sizeof(m), CLP_MSG_REFUSED, flags}};
    struct clp_text t = clp_text_in(m.reason, sizeof(m.reason));
    clp_text_add(&t, reason);
    (void)send_message(sock, &m, sizeof(m)); /* best effort: the link ends either way */
}

static uint64_t refused_calls(void)
{
    return (clp_probe_result(CLP_PROBE_TIMER) < 0 ? CLP_HELLO_NO_TIMERS : 0) |
           (clp_probe_result(CLP_PROBE_VM_READV) < 0 ? CLP_HELLO_NO_VM_READV : 0);
}

static int send_hello(const struct clp_link *l)
{
    struct clp_msg_hello m = {
        .msg = {sizeof(m), CLP_MSG_HELLO, 0},
        .magic = CLP_WIRE_MAGIC,
        .version = CLP_WIRE_VERSION,
        .pid = (uint32_t)getpid(),
        .runtime_major = self.major,
        .runtime_minor = self.minor,
        .runtime_patch = self.patch,
        .flags = refused_calls(),
        .library_version = CLP_VERSION,
    };
    memcpy(m.library_nonce, l->attach.library_nonce, CLP_NONCE_BYTES);
    return send_message(l->sock, &m, sizeof(m));
}

/* ---- coming and going ---- */

static void keep_seq(const struct clp_link *l)
{
    const struct clp_wire_header *h = l->mapping;
    uint64_t seq = h ? atomic_load_explicit(&h->next_seq, memory_order_relaxed) : 0;
    kept_seq = CLP_MAX(kept_seq, seq);
}

static void hand_on_seq(const struct clp_link *l)
{
    struct clp_wire_header *h = l->mapping;
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++)
        keep_seq(&links[i]); /* one that was replaced may not have closed yet */
    atomic_store_explicit(&h->kept_seq, kept_seq, memory_order_relaxed);
}

void clp_link_close(struct clp_link *l, const char *reason)
{
    if (reason && l->sock >= 0)
        send_refusal(l->sock, 0, reason);
    if (l->sock >= 0)
        (void)close(l->sock);
    if (l->state == CLP_LINK_ACTIVE)
        clp_feed_close(&l->feed);
    keep_seq(l);
    if (l->mapping)
        (void)munmap(l->mapping, l->mapped_bytes);
    memset(l, 0, sizeof(*l)); /* nonces too */
    l->sock = -1;
}

void clp_link_ask_recount(struct clp_link *l)
{
    struct clp_msg m = {sizeof(m), CLP_MSG_RECOUNT, 0};
    (void)send_message(l->sock, &m, sizeof(m)); /* lost: it is asked again */
}

/* 0 connected, -EAGAIN try later, else -errno. */
static int connect_socket(struct clp_link *l)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t n = strnlen(l->attach.socket_path, sizeof(l->attach.socket_path));
    if (n >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    memcpy(address.sun_path, l->attach.socket_path, n);
    if (connect(l->sock, (const struct sockaddr *)&address, sizeof(address)) < 0)
        return -errno;
    return 0;
}

static void try_connect(struct clp_link *l)
{
    int r = connect_socket(l);
    if (r == 0)
        r = send_hello(l);
    if (r == 0)
        l->state = CLP_LINK_GREETED;
    else if (r != -EAGAIN)
        clp_link_close(l, NULL);
}

/* In a table of our own the number is moved out of the way: code of the runtime that runs on this
 * thread and uses a number of the application's table shall find nothing. */
static int open_socket(void)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int high = fd >= 0 && self.own_descriptors ? fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD) : -1;
    if (high < 0)
        return fd;
    (void)close(fd);
    return high;
}

bool clp_links_connect(const struct clp_attach_data *attach, uint64_t now_ns)
{
    struct clp_link spare = {.sock = -1}, *l = NULL;
    for (unsigned i = 0; i < CLP_LINKS_MAX && !l; i++)
        if (links[i].state == CLP_LINK_FREE)
            l = &links[i];
    struct clp_link *use = l ? l : &spare;
    *use = (struct clp_link){
        .state = CLP_LINK_CONNECTING, .attach = *attach, .deadline_ns = now_ns + HANDSHAKE_NS};
    use->sock = open_socket();
    if (use->sock < 0) {
        clp_link_close(use, NULL);
        return false;
    }
    if (l) {
        try_connect(l);
        return true;
    }
    if (connect_socket(&spare) == 0)
        send_refusal(spare.sock, CLP_REFUSED_FULL,
                     "four readers are attached to this process already");
    clp_link_close(&spare, NULL);
    return false;
}

/* ---- WELCOME ---- */

/* CMSG_NXTHDR, which on glibc is a function of its own where it is not inlined, and on musl is
 * none. */
static struct cmsghdr *next_header(const struct msghdr *m, struct cmsghdr *c)
{
    const uint8_t *end = (const uint8_t *)m->msg_control + m->msg_controllen;
    size_t left = (size_t)(end - (const uint8_t *)c);
    if (c->cmsg_len < sizeof(*c) || c->cmsg_len > left ||
        left - c->cmsg_len < CMSG_ALIGN(c->cmsg_len) - c->cmsg_len + sizeof(*c))
        return NULL;
    struct cmsghdr *next = (struct cmsghdr *)((uint8_t *)c + CMSG_ALIGN(c->cmsg_len));
    return next->cmsg_len <= (size_t)(end - (const uint8_t *)next) ? next : NULL;
}

/* The fd that came with a message; every other one is closed. -1 for none or more than one. */
static int take_fd(struct msghdr *m)
{
    int fds[FDS_MAX], count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = next_header(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n && count < FDS_MAX; i++)
            memcpy(&fds[count++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
    }
    if (count == 1 && !(m->msg_flags & MSG_CTRUNC))
        return fds[0];
    while (count > 0)
        (void)close(fds[--count]);
    return -1;
}

static int map_memory(struct clp_link *l, int fd)
{
    size_t bytes;
    int r = clp_wire_memory_check(fd, &bytes);
    if (r < 0)
        return r;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return -errno;
    (void)madvise(p, bytes, MADV_DONTFORK); /* advice: a child that has it does not use it */
    l->mapping = p;
    l->mapped_bytes = bytes;
    hand_on_seq(l);
    return 0;
}

static void welcome(struct clp_link *l, const struct clp_msg_welcome *m, int fd)
{
    if (!clp_nonce_equal(m->reader_nonce, l->attach.reader_nonce)) {
        clp_link_close(l, NULL); /* not who announced itself: no word to it */
        return;
    }
    if (fd < 0 || map_memory(l, fd) < 0) {
        clp_link_close(l, "the shared memory is missing, not sealed, not allocated, or of a size "
                          "that is not allowed");
        return;
    }
    l->settings = clp_settings_clamp(&m->settings);
    l->state = CLP_LINK_WELCOMED;
}

/* ---- messages ---- */

static void say_goodbye(struct clp_link *l, bool detach, struct clp_links_news *news)
{
    clp_link_close(l, NULL);
    news->settings_changed = true;
    news->detach_asked |= detach;
}

static void handle_settled(struct clp_link *l, const union clp_msg_any *m, int type,
                           struct clp_links_news *news)
{
    switch (type) {
    case CLP_MSG_SETTINGS:
        l->settings = clp_settings_clamp(&m->settings.settings);
        news->settings_changed = true;
        return;
    case CLP_MSG_FLUSH:
        /* A second one before the first is answered replaces it: its mark covers both. */
        l->flush_id = m->flush.flush_id;
        if (l->flush_id == 0)
            break;
        return;
    case CLP_MSG_BYE:
        say_goodbye(l, m->msg.flags & CLP_BYE_DETACH_IF_LAST, news);
        return;
    default:
        break;
    }
    clp_link_close(l, "a message that has no place here");
    news->settings_changed = true;
}

static void handle(struct clp_link *l, const union clp_msg_any *m, size_t len, int fd,
                   struct clp_links_news *news)
{
    int type = clp_msg_check(m, len);
    bool wants_fd = l->state == CLP_LINK_GREETED && type == CLP_MSG_WELCOME;
    if (type < 0) {
        clp_link_close(l, "a malformed message");
        news->settings_changed = true;
    } else if (wants_fd) {
        welcome(l, &m->welcome, fd);
        news->settings_changed = true;
    } else if (l->state == CLP_LINK_WELCOMED || l->state == CLP_LINK_ACTIVE) {
        handle_settled(l, m, type, news);
    } else if (type == CLP_MSG_BYE) {
        say_goodbye(l, m->msg.flags & CLP_BYE_DETACH_IF_LAST, news);
    } else {
        clp_link_close(l, "a message before WELCOME");
    }
    if (fd >= 0)
        (void)close(fd); /* a mapping needs it no longer */
}

/* One message. false: nothing more now, or the link is closed. */
static bool receive(struct clp_link *l, struct clp_links_news *news)
{
    union clp_msg_any buf;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(FDS_MAX * sizeof(int))];
    struct iovec iov = {&buf, sizeof(buf)};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control,
                       .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(l->sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    /* It closed its end with words of ours unread. That is told once, and before what it had sent:
     * its goodbye may still be there. */
    if (n < 0 && errno == ECONNRESET && !l->reset) {
        l->reset = true;
        return true;
    }
    if (n <= 0) {
        clp_link_close(l, NULL);
        news->settings_changed = true;
        return false;
    }
    int fd = take_fd(&m);
    handle(l, &buf, (size_t)n, fd, news);
    return l->state != CLP_LINK_FREE;
}

/* ---- a round ---- */

static void serve_connecting(struct clp_link *l, uint64_t now_ns)
{
    if (now_ns >= l->deadline_ns)
        clp_link_close(l, NULL);
    else
        try_connect(l);
}

static void serve_one(struct clp_link *l, bool readable, uint64_t now_ns,
                      struct clp_links_news *news)
{
    for (int i = 0; readable && i < MESSAGES_A_ROUND && receive(l, news); i++)
        ;
    if (l->state == CLP_LINK_GREETED && now_ns >= l->deadline_ns)
        clp_link_close(l, "no WELCOME within five seconds");
}

void clp_links_serve(uint64_t now_ns, struct clp_links_news *news)
{
    struct pollfd fds[CLP_LINKS_MAX];
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++) {
        if (links[i].state == CLP_LINK_CONNECTING)
            serve_connecting(&links[i], now_ns);
        bool listens = links[i].state > CLP_LINK_CONNECTING;
        fds[i] = (struct pollfd){.fd = listens ? links[i].sock : -1, .events = POLLIN};
    }
    if (poll(fds, CLP_LINKS_MAX, 0) <= 0)
        memset(fds, 0, sizeof(fds));
    for (unsigned i = 0; i < CLP_LINKS_MAX; i++)
        if (links[i].state > CLP_LINK_CONNECTING)
            serve_one(&links[i], fds[i].revents != 0, now_ns, news);
    /* Only now: who left in this round is gone, in whatever order they were served. */
    if (clp_links_any())
        news->detach_asked = false;
}
