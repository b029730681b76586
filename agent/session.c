#include "agent/session.h"

#include "agent/hook.h"
#include "agent/place.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/core/text.h"
#include "base/log.h"
#include "sampler/eventpipe/ipc_call.h"
#include "wire/clsid.h"
#include "wire/memory.h"
#include "wire/message.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HELLO_NS (2 * CLP_NSEC_PER_SEC)         /* a visitor's time to introduce itself */
#define RETRY_NS (100 * CLP_NSEC_PER_MSEC)      /* when the runtime is not ready */
#define EARLY_HOOK_NS (200 * CLP_NSEC_PER_MSEC) /* a program's start waits for its hook */
#define EXIT_NS (500 * CLP_NSEC_PER_MSEC) /* from a process's last socket to its last breath */
#define MESSAGE_MAX_BYTES 256

struct clp_session {
    enum clp_session_state state;
    struct clp_fault fault;
    struct clp_session_config config;
    char library[PATH_MAX];   /* config.library: a second attach wants it as well */
    struct clp_dotnet target; /* its temp_fd and root_fd are ours */
    int process_fd;           /* pidfd; -1 where the kernel has none */

    struct clp_place place;
    struct clp_attach_data attach;
    struct clp_hook hook;
    int64_t sweep_before_s; /* when we came, wall time; 0: nothing to sweep */
    struct clp_ipc_request request;
    struct clp_ipc_call call;
    bool asked;     /* the call is open */
    bool answered;  /* the runtime has said yes */
    bool announced; /* nobody was asked: the library comes by itself */
    uint64_t attach_until_ns, retry_at_ns;

    int peer_fd; /* the library, or a visitor that has not shown its nonce */
    uint64_t hello_until_ns;
    bool greeted;           /* it is the library, and its WELCOME waits for the hook */
    uint64_t exit_until_ns; /* the socket has closed: does the process end as well? */
    uint64_t refused_calls; /* enum of CLP_HELLO_NO_...; foreign */

    void *memory;
    size_t memory_bytes;
    struct clp_reader *reader;
    uint64_t drained_bytes;
};

/* ---- ends ---------------------------------------------------------------------------------- */

static void close_attach(struct clp_session *s)
{
    if (s->asked)
        clp_ipc_call_done(&s->call);
    s->asked = false;
    clp_place_remove(&s->place);
}

#define FAIL(s, error, ...) fail((s), clp_fault_set(&(s)->fault, (error), __VA_ARGS__))
static void fail(struct clp_session *s, int error)
{
    (void)error;
    s->state = CLP_SESSION_FAILED;
    close_attach(s);
    clp_cleanup_fd(&s->peer_fd);
    s->peer_fd = -1;
}

/* Reads all that the target has left behind: nobody writes any more. */
static void end(struct clp_session *s, const char *why)
{
    close_attach(s);
    clp_cleanup_fd(&s->peer_fd);
    s->peer_fd = -1;
    if (clp_session_drain(s) == CLP_SESSION_FAILED)
        return;
    (void)clp_fault_set(&s->fault, 0, "%s", why);
    s->state = CLP_SESSION_ENDED;
}

static bool has_exited(const struct clp_session *s)
{
    struct pollfd p = {.fd = s->process_fd, .events = POLLIN};
    if (s->process_fd < 0)
        return !clp_dotnet_alive(&clp_discover_system, &s->target);
    return poll(&p, 1, 0) > 0 && (p.revents & POLLIN);
}

/* ---- attach -------------------------------------------------------------------------------- */

static int begin_attach(struct clp_session *s, uint32_t flags, struct clp_fault *fault);

static int ask_runtime(struct clp_session *s)
{
    int r = clp_ipc_call_start(&s->call, s->target.temp_fd, s->target.socket_name, &s->request,
                               s->attach_until_ns);
    s->asked = r == 0;
    return r;
}

static bool is_not_ready(uint32_t hr)
{
    return hr == (uint32_t)CLP_ATTACH_LEAVING || hr == 0x8013135bu || hr == 0x80131371u;
}

/* What the library means by results that it chose itself; NULL: ask the general table. */
static const char *attach_text(uint32_t hr)
{
    switch (hr) {
    case (uint32_t)CLP_ATTACH_DISABLED:
        return "its owner has switched profiling off (CLRPULSE_DISABLE, or a profiler switch of "
               "the runtime)";
    case (uint32_t)CLP_ATTACH_BAD_DATA:
        return "it holds a library of another clrpulse version; restart the process";
    case (uint32_t)CLP_ATTACH_FAILED:
        return "the library could not start in it";
    default:
        return clp_hresult_text(hr);
    }
}

static void refused(struct clp_session *s, uint32_t hr)
{
    const char *text = attach_text(hr);
    if (text)
        FAIL(s, CLP_FAULT_REFUSED, "the runtime of process %d refused the profiler: %s (0x%08x)",
             s->target.pid, text, hr);
    else
        FAIL(s, CLP_FAULT_REFUSED, "the runtime of process %d refused the profiler with 0x%08x",
             s->target.pid, hr);
}

static void take_answer(struct clp_session *s, const struct clp_ipc_reply *reply, uint64_t now_ns)
{
    uint32_t hr;
    if (clp_ipc_parse_hresult(reply, &hr) < 0)
        FAIL(s, -EPROTO, "the runtime of process %d gave an answer without a result",
             s->target.pid);
    else if (hr == (uint32_t)CLP_ATTACH_OK || hr == CLP_HRESULT_CANCEL_ACTIVATION)
        s->answered = true;
    else if (is_not_ready(hr) && now_ns + RETRY_NS < s->attach_until_ns)
        s->retry_at_ns = now_ns + RETRY_NS;
    else
        refused(s, hr);
}

static void step_call(struct clp_session *s, uint64_t now_ns)
{
    struct clp_ipc_reply reply;
    int r = clp_ipc_call_step(&s->call, now_ns, &reply);
    if (r == -EAGAIN)
        return;
    if (r == 0)
        take_answer(s, &reply, now_ns);
    else if (r == -ETIMEDOUT)
        FAIL(s, r,
             "process %d did not answer the attach within %llu s; if it is stopped or frozen, "
             "let it run and try again",
             s->target.pid, (unsigned long long)(s->config.attach_ns / CLP_NSEC_PER_SEC));
    else
        FAIL(s, r, "process %d broke the attach off: %s", s->target.pid,
             r == -ECONNRESET ? "it ended, or closed its diagnostics port" : strerror(-r));
    if (s->asked) /* a fault has closed it already */
        clp_ipc_call_done(&s->call);
    s->asked = false;
}

static void step_retry(struct clp_session *s, uint64_t now_ns)
{
    if (s->retry_at_ns == 0 || now_ns < s->retry_at_ns)
        return;
    s->retry_at_ns = 0;
    int r = ask_runtime(s);
    if (r < 0)
        FAIL(s, r, "process %d closed its diagnostics port: %s", s->target.pid, strerror(-r));
}

/* ---- hand-shake ---------------------------------------------------------------------------- */

static int send_message(int fd, const void *message, size_t len, int pass_fd)
{
    alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = len};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (pass_fd >= 0) {
        m.msg_control = control;
        m.msg_controllen = sizeof(control);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &pass_fd, sizeof(int));
    }
    ssize_t n = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n < 0 ? -errno : (size_t)n == len ? 0 : -EIO;
}

/* Events come in bursts, whatever the number of CPUs. */
static uint32_t ring_bytes_of(long cpus, const struct clp_settings *settings)
{
    if (settings->sample_kinds & CLP_SAMPLE_KINDS_EVENT)
        return CLP_SESSION_RING_MOST_BYTES;
    uint32_t bytes = CLP_SESSION_RING_LEAST_BYTES;
    while (bytes < CLP_SESSION_RING_MOST_BYTES && (long)(bytes / CLP_SESSION_RING_CPU_BYTES) < cpus)
        bytes *= 2;
    return bytes;
}

/* The ring's memory, and its descriptor to hand over. All of it is ours from the beginning, so it
 * is mapped at once: what an agent needs does not seem to grow while rings are filled the first
 * time. */
static int make_memory(struct clp_session *s, int *ret_fd)
{
    uint32_t ring = s->config.ring_bytes;
    int r = clp_wire_memory_create(ring, ret_fd, &s->memory);
    if (r < 0)
        return r;
    s->memory_bytes = CLP_WIRE_HEADER_BYTES + (size_t)ring;
#ifdef MADV_POPULATE_READ
    (void)madvise(s->memory, s->memory_bytes, MADV_POPULATE_READ); /* since Linux 5.14 */
#endif
    return clp_reader_new(s->memory, ring, &s->reader);
}

static void welcome(struct clp_session *s)
{
    CLP_CLEANUP(clp_cleanup_fd) int memory_fd = -1;
    struct clp_msg_welcome m = {
        .msg = {.size = sizeof(m), .type = CLP_MSG_WELCOME},
        .settings = s->config.settings,
    };
    memcpy(m.reader_nonce, s->attach.reader_nonce, CLP_NONCE_BYTES);
    int r = make_memory(s, &memory_fd);
    if (r == 0)
        r = send_message(s->peer_fd, &m, sizeof(m), memory_fd);
    if (r < 0) {
        FAIL(s, r, "cannot share memory with process %d: %s", s->target.pid, strerror(-r));
        return;
    }
    s->state = CLP_SESSION_LIVE;
    clp_place_remove(&s->place); /* loaded and connected: nothing of it is needed any more */
}

/* Not the library: somebody of the same user found the socket. The next one may come. */
static void send_away(struct clp_session *s, const char *why)
{
    clp_log_debug("process %d: a visitor on the socket was sent away: %s", s->target.pid, why);
    clp_cleanup_fd(&s->peer_fd);
    s->peer_fd = -1;
}

/* Children inherit the announcement. When the command itself runs .NET it is the one that is meant,
 * however early a child of its own reports; only where it does not, the first descendant is. */
static bool is_a_child_of_the_meant(const struct clp_session *s, int32_t peer_pid)
{
    struct clp_dotnet command;
    if (s->target.pid <= 0 || peer_pid == s->target.pid ||
        clp_dotnet_open(&clp_discover_system, s->target.pid, &command) < 0)
        return false;
    clp_dotnet_look_closer(&clp_discover_system, &command);
    bool dotnet = command.start_ticks == s->target.start_ticks &&
                  (command.state == CLP_DOTNET_PORT || command.state == CLP_DOTNET_NO_PORT ||
                   command.state == CLP_DOTNET_DENIED);
    clp_dotnet_done(&command);
    return dotnet;
}

/* Who it is that loaded the library at its start: the socket's other end. Without its name a
 * profile can still be made. */
static int adopt_peer(struct clp_session *s, const struct clp_msg_hello *hello)
{
    struct ucred peer = {0};
    socklen_t len = sizeof(peer);
    struct clp_dotnet found;
    if (getsockopt(s->peer_fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.pid <= 0)
        return -ESRCH;
    if (is_a_child_of_the_meant(s, peer.pid))
        return -ECHILD;
    if (clp_dotnet_open(&clp_discover_system, peer.pid, &found) < 0)
        return -ESRCH;
    clp_dotnet_ask(&found, 1, CLP_DISCOVER_ASK_NS);
    clp_dotnet_done(&s->target);
    clp_cleanup_fd(&s->process_fd);
    s->target = found;
    s->process_fd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
    if (!*found.info.runtime_version)
        snprintf(s->target.info.runtime_version, sizeof(s->target.info.runtime_version), "%u.%u.%u",
                 hello->runtime_major, hello->runtime_minor, hello->runtime_patch);
    if (!found.info.major)
        s->target.info.major = hello->runtime_major;
    return 0;
}

/* A program that is started for us does not begin before its library is welcome
 * (clp_loop_wait_for_readers): a hook that its runtime is told of until then runs before Main. */
static void greet(struct clp_session *s, uint64_t now_ns)
{
    if (s->announced && s->hook.state == CLP_HOOK_NEW)
        clp_hook_send(&s->hook, &s->target, s->config.library);
    s->greeted = s->hook.state == CLP_HOOK_ASKED;
    s->hello_until_ns = now_ns + EARLY_HOOK_NS;
    if (!s->greeted)
        welcome(s);
}

static void step_greeted(struct clp_session *s, uint64_t now_ns)
{
    clp_hook_step(&s->hook, now_ns, false, false);
    if (s->hook.state != CLP_HOOK_ASKED || now_ns >= s->hello_until_ns)
        welcome(s);
}

static void take_hello(struct clp_session *s, const struct clp_msg_hello *hello, uint64_t now_ns)
{
    char version[64];
    int r = clp_msg_hello_check(hello, s->attach.library_nonce, version, sizeof(version));
    if (r == -EACCES)
        send_away(s, "wrong nonce");
    else if (r < 0)
        FAIL(s, CLP_FAULT_REFUSED,
             "process %d holds a library of another clrpulse version; restart "
             "the process, or use the clrpulse that belongs to it",
             s->target.pid);
    else if (s->announced && adopt_peer(s, hello) < 0)
        send_away(s, "it has gone, or is a child of the command");
    else {
        s->refused_calls = hello->flags;
        greet(s, now_ns);
    }
}

static void take_refusal(struct clp_session *s, const struct clp_msg_refused *m)
{
    char reason[sizeof(m->reason) * 3];
    struct clp_text t = clp_text_in(reason, sizeof(reason));
    clp_text_utf8_clean(&t, m->reason, strnlen(m->reason, sizeof(m->reason)));
    int error = m->msg.flags & CLP_REFUSED_FULL ? CLP_FAULT_FULL : CLP_FAULT_REFUSED;
    FAIL(s, error, "the library in process %d refused: %s", s->target.pid, reason);
}

/* One datagram. -EAGAIN none there, -ECONNRESET the other side is gone, -EBADMSG no message. */
static int receive(struct clp_session *s, void *buf, size_t cap)
{
    ssize_t n = recv(s->peer_fd, buf, cap, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0)
        return errno == EINTR ? -EAGAIN : errno == EAGAIN ? -EAGAIN : -ECONNRESET;
    if (n == 0)
        return -ECONNRESET;
    return (size_t)n > cap ? -EBADMSG : clp_msg_check(buf, (size_t)n);
}

static void step_hello(struct clp_session *s, uint64_t now_ns)
{
    alignas(8) uint8_t buf[MESSAGE_MAX_BYTES];
    int r = receive(s, buf, sizeof(buf));
    if (r == -EAGAIN && now_ns < s->hello_until_ns)
        return;
    if (r == CLP_MSG_HELLO)
        take_hello(s, (const struct clp_msg_hello *)buf, now_ns);
    else if (r == CLP_MSG_REFUSED)
        take_refusal(s, (const struct clp_msg_refused *)buf);
    else
        send_away(s, r == -EAGAIN ? "silence" : "no HELLO");
}

static void step_accept(struct clp_session *s, uint64_t now_ns)
{
    int fd = accept4(s->place.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    s->peer_fd = fd;
    s->hello_until_ns = now_ns + HELLO_NS;
}

static void step_attaching(struct clp_session *s, uint64_t now_ns)
{
    if (s->asked)
        step_call(s, now_ns);
    if (s->state == CLP_SESSION_ATTACHING)
        step_retry(s, now_ns);
    if (s->state == CLP_SESSION_ATTACHING && s->peer_fd < 0)
        step_accept(s, now_ns);
    if (s->state == CLP_SESSION_ATTACHING && s->greeted)
        step_greeted(s, now_ns);
    else if (s->state == CLP_SESSION_ATTACHING && s->peer_fd >= 0)
        step_hello(s, now_ns);
    if (s->state != CLP_SESSION_ATTACHING)
        return;
    if (has_exited(s))
        FAIL(s, -ESRCH,
             s->announced ? "process %d ended before the library was loaded in it"
                          : "process %d ended during the attach",
             s->target.pid);
    else if (now_ns >= s->attach_until_ns)
        FAIL(s, -ETIMEDOUT,
             "the library in process %d did not report back within %llu s; see the "
             "process's own log for what kept it from running",
             s->target.pid, (unsigned long long)(s->config.attach_ns / CLP_NSEC_PER_SEC));
}

/* ---- live ---------------------------------------------------------------------------------- */

/* The runtime's answer may come after the library's HELLO, which counts for more than any answer;
 * a recount that failed is asked for again. */
static void finish_call(struct clp_session *s, uint64_t now_ns)
{
    struct clp_ipc_reply reply;
    if (clp_ipc_call_step(&s->call, now_ns, &reply) != -EAGAIN)
        close_attach(s);
}

/* The library asks for an attach that adds no reader. Its wish comes each second until it is
 * fulfilled; while one is under way the next is passed over. */
static void take_recount(struct clp_session *s, uint64_t now_ns)
{
    struct clp_fault fault;
    if (s->asked)
        return;
    s->attach_until_ns = now_ns + s->config.attach_ns;
    if (begin_attach(s, CLP_ATTACH_COUNT_ONLY, &fault) < 0) {
        clp_log_debug("process %d: no recount: %s", s->target.pid, fault.text);
        close_attach(s);
    }
}

/* When the library serves the ring: before, it could not be found by the hook, nor tell that
 * another session has brought it. (At a program's start the hook was sent before: it runs later
 * than the library.) */
static void step_hook(struct clp_session *s, uint64_t now_ns)
{
    bool serves = clp_reader_heartbeat_ns(s->reader) != 0; /* first: counters are older otherwise */
    bool runs = !s->config.no_hook && clp_reader_counter(s->reader, CLP_CTR_SPAN_HOOK) != 0;
    if (s->hook.state == CLP_HOOK_NEW && serves) {
        if (runs)
            s->hook.state = CLP_HOOK_RUNS;
        else
            clp_hook_send(&s->hook, &s->target, s->config.library);
    }
    bool was_off = s->hook.state == CLP_HOOK_OFF;
    clp_hook_step(&s->hook, now_ns, runs, serves);
    if (s->hook.state == CLP_HOOK_RUNS && s->sweep_before_s) {
        clp_hook_sweep(&s->target, s->sweep_before_s);
        s->sweep_before_s = 0;
    }
    if (s->hook.state == CLP_HOOK_OFF && !was_off)
        clp_log_debug("process %d: no spans: %s", s->target.pid, s->hook.reason);
}

static void step_closed(struct clp_session *s, uint64_t now_ns)
{
    if (has_exited(s))
        end(s, "the process has ended");
    else if (now_ns >= s->exit_until_ns)
        end(s, "the library has left the process");
}

static void step_live(struct clp_session *s, uint64_t now_ns)
{
    alignas(8) uint8_t buf[MESSAGE_MAX_BYTES];
    if (s->asked)
        finish_call(s, now_ns);
    step_hook(s, now_ns);
    if (s->peer_fd < 0) {
        step_closed(s, now_ns);
        return;
    }
    int r = receive(s, buf, sizeof(buf));
    if (r == CLP_MSG_REFUSED) {
        take_refusal(s, (const struct clp_msg_refused *)buf);
    } else if (r == CLP_MSG_RECOUNT) {
        take_recount(s, now_ns);
    } else if (r == -ECONNRESET) {
        clp_cleanup_fd(&s->peer_fd);
        s->peer_fd = -1;
        s->exit_until_ns = now_ns + EXIT_NS;
        step_closed(s, now_ns);
    } else if (r != -EAGAIN) {
        FAIL(s, -EBADMSG, "the library in process %d sent a message that is none", s->target.pid);
    } else if (has_exited(s)) { /* a forked child may hold the socket open */
        end(s, "the process has ended");
    }
}

enum clp_session_state clp_session_step(struct clp_session *s, uint64_t now_ns)
{
    if (s->state == CLP_SESSION_ATTACHING)
        step_attaching(s, now_ns);
    else if (s->state == CLP_SESSION_LIVE)
        step_live(s, now_ns);
    return s->state;
}

enum clp_session_state clp_session_drain(struct clp_session *s)
{
    struct clp_reader_record record;
    if (!s->reader || s->state != CLP_SESSION_LIVE)
        return s->state;
    int64_t bytes = clp_reader_poll(s->reader);
    s->drained_bytes = bytes > 0 ? (uint64_t)bytes : 0;
    int r = (int)CLP_MIN(bytes, 1);
    while (r > 0 && (r = clp_reader_next(s->reader, &record)) > 0)
        s->config.record(s->config.context, &record);
    if (r < 0)
        FAIL(s, -EBADMSG, "process %d wrote nonsense into its ring: %s", s->target.pid,
             clp_reader_error(s->reader));
    return s->state;
}

uint64_t clp_session_drained_bytes(const struct clp_session *s)
{
    return s->drained_bytes;
}

uint32_t clp_session_ring_bytes(const struct clp_session *s)
{
    return s->config.ring_bytes;
}

int clp_session_flush(struct clp_session *s, uint64_t flush_id)
{
    struct clp_msg_flush m = {.msg = {.size = sizeof(m), .type = CLP_MSG_FLUSH},
                              .flush_id = flush_id};
    if (s->state != CLP_SESSION_LIVE || s->peer_fd < 0)
        return -ENOTCONN;
    return send_message(s->peer_fd, &m, sizeof(m), -1);
}

int clp_session_set(struct clp_session *s, const struct clp_settings *settings)
{
    struct clp_msg_settings m = {.msg = {.size = sizeof(m), .type = CLP_MSG_SETTINGS},
                                 .settings = *settings};
    s->config.settings = *settings; /* for a WELCOME that is still to come */
    if (s->state != CLP_SESSION_LIVE || s->peer_fd < 0)
        return s->state == CLP_SESSION_ATTACHING ? 0 : -ENOTCONN;
    return send_message(s->peer_fd, &m, sizeof(m), -1);
}

void clp_session_bye(struct clp_session *s, bool detach)
{
    struct clp_msg m = {
        .size = sizeof(m), .type = CLP_MSG_BYE, .flags = detach ? CLP_BYE_DETACH_IF_LAST : 0};
    if (s->state != CLP_SESSION_LIVE)
        return;
    if (s->peer_fd >= 0)
        (void)send_message(s->peer_fd, &m, sizeof(m), -1); /* the closed socket says the same */
    end(s, "the session is over");
}

/* ---- life ---------------------------------------------------------------------------------- */

static int fill_attach_data(struct clp_session *s, uint32_t flags)
{
    struct clp_attach_data *a = &s->attach;
    *a = (struct clp_attach_data){
        .magic = CLP_WIRE_MAGIC, .version = CLP_WIRE_VERSION, .flags = flags};
    memcpy(a->socket_path, s->place.socket_path, sizeof(a->socket_path));
    if (getrandom(a->library_nonce, CLP_NONCE_BYTES, 0) != CLP_NONCE_BYTES ||
        getrandom(a->reader_nonce, CLP_NONCE_BYTES, 0) != CLP_NONCE_BYTES)
        return -EIO;
    return 0;
}

static int begin_attach(struct clp_session *s, uint32_t flags, struct clp_fault *fault)
{
    static const uint8_t clsid[CLP_GUID_BYTES] = CLP_CLSID_BYTES;
    int r = clp_place_make(&s->place, &s->target, s->config.library, fault);
    if (r < 0)
        return r;
    r = fill_attach_data(s, flags);
    if (r == 0)
        r = clp_ipc_encode_attach(&s->request, (uint32_t)(s->config.attach_ns / CLP_NSEC_PER_MSEC),
                                  clsid, s->place.library_path, &s->attach, sizeof(s->attach));
    if (r == 0)
        r = ask_runtime(s);
    if (r < 0)
        return clp_fault_set(fault, r, "cannot ask the runtime of process %d to attach: %s",
                             s->target.pid, strerror(-r));
    return 0;
}

/* Own references to what the caller found; the process must still be the one that was found. */
static int take_target(struct clp_session *s, const struct clp_dotnet *t, struct clp_fault *fault)
{
    s->target = *t;
    s->target.root_fd = fcntl(t->root_fd, F_DUPFD_CLOEXEC, 0);
    s->target.temp_fd = fcntl(t->temp_fd, F_DUPFD_CLOEXEC, 0);
    s->process_fd = (int)syscall(SYS_pidfd_open, t->pid, 0);
    if (s->target.root_fd < 0 || s->target.temp_fd < 0)
        return clp_fault_set(fault, -EMFILE, "too many open files; raise the limit (ulimit -n)");
    if (!clp_dotnet_alive(&clp_discover_system, t))
        return clp_fault_set(fault, -ESRCH, "process %d has ended", t->pid);
    return 0;
}

static struct clp_session *new_session(const struct clp_session_config *config)
{
    struct clp_session *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->config = *config;
    snprintf(s->library, sizeof(s->library), "%s", config->library);
    s->config.library = s->library;
    if (!s->config.ring_bytes)
        s->config.ring_bytes = ring_bytes_of(sysconf(_SC_NPROCESSORS_ONLN), &config->settings);
    if (!s->config.attach_ns)
        s->config.attach_ns = CLP_SESSION_ATTACH_NS;
    s->attach_until_ns = clp_clock_monotonic_ns() + s->config.attach_ns;
    s->peer_fd = s->process_fd = -1;
    s->target.root_fd = s->target.temp_fd = -1;
    clp_hook_init(&s->hook, config->no_hook);
    s->place = (struct clp_place){
        .listen_fd = -1, .meet = {.parent_fd = -1, .fd = -1}, .copy = {.parent_fd = -1, .fd = -1}};
    return s;
}

int clp_session_start(const struct clp_dotnet *target, const struct clp_session_config *config,
                      struct clp_session **ret, struct clp_fault *fault)
{
    struct clp_session *s = new_session(config);
    if (!s)
        return clp_fault_set(fault, -ENOMEM, "out of memory");
    int r = take_target(s, target, fault);
    s->sweep_before_s = (int64_t)(clp_clock_realtime_ns() / CLP_NSEC_PER_SEC);
    if (r == 0)
        r = begin_attach(s, 0, fault);
    if (r < 0) {
        clp_session_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

static void announcement(const struct clp_attach_data *data, char *ret)
{
    const uint8_t *bytes = (const uint8_t *)data;
    for (size_t i = 0; i < sizeof(*data); i++)
        snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
}

int clp_session_announce(const struct clp_session_config *config, struct clp_session **ret,
                         char ret_announcement[CLP_ANNOUNCEMENT_BYTES], struct clp_fault *fault)
{
    struct clp_session *s = new_session(config);
    if (!s)
        return clp_fault_set(fault, -ENOMEM, "out of memory");
    s->announced = true;
    s->target = (struct clp_dotnet){.root_fd = -1, .temp_fd = -1};
    s->attach_until_ns = UINT64_MAX; /* its program may be the last of a long script */
    int r = clp_place_announce(&s->place, fault);
    if (r == 0 && fill_attach_data(s, 0) < 0)
        r = clp_fault_set(fault, -EIO, "the kernel gives no random numbers");
    if (r < 0) {
        clp_session_free(s);
        return r;
    }
    announcement(&s->attach, ret_announcement);
    *ret = s;
    return 0;
}

int clp_session_watch(struct clp_session *s, int32_t pid)
{
    struct clp_dotnet found;
    int r = clp_dotnet_open(&clp_discover_system, pid, &found);
    if (r < 0)
        return r;
    clp_dotnet_done(&s->target);
    clp_cleanup_fd(&s->process_fd);
    s->target = found;
    s->process_fd = (int)syscall(SYS_pidfd_open, pid, 0);
    return 0;
}

const struct clp_dotnet *clp_session_process(const struct clp_session *s)
{
    return &s->target;
}

struct clp_session *clp_session_free(struct clp_session *s)
{
    if (!s)
        return NULL;
    close_attach(s);
    clp_hook_done(&s->hook, !s->config.one_of_many, has_exited(s));
    clp_cleanup_fd(&s->peer_fd);
    clp_cleanup_fd(&s->process_fd);
    clp_dotnet_done(&s->target);
    clp_reader_free(s->reader);
    if (s->memory)
        (void)munmap(s->memory, s->memory_bytes);
    free(s);
    return NULL;
}

/* ---- what the caller asks ------------------------------------------------------------------ */

size_t clp_session_fds(const struct clp_session *s, struct pollfd *ret)
{
    size_t n = 0;
    if (s->state != CLP_SESSION_ATTACHING && s->state != CLP_SESSION_LIVE)
        return 0;
    if (s->asked)
        ret[n++] = (struct pollfd){.fd = s->call.fd, .events = clp_ipc_call_events(&s->call)};
    if (s->hook.state == CLP_HOOK_ASKED)
        ret[n++] =
            (struct pollfd){.fd = s->hook.call.fd, .events = clp_ipc_call_events(&s->hook.call)};
    if (s->peer_fd >= 0)
        ret[n++] = (struct pollfd){.fd = s->peer_fd, .events = POLLIN};
    else if (s->place.listen_fd >= 0)
        ret[n++] = (struct pollfd){.fd = s->place.listen_fd, .events = POLLIN};
    /* A live one ends with its socket; where a child holds that open, the next step tells. */
    if (s->process_fd >= 0 && (s->state == CLP_SESSION_ATTACHING || s->peer_fd < 0))
        ret[n++] = (struct pollfd){.fd = s->process_fd, .events = POLLIN};
    return n;
}

bool clp_session_has_spans(const struct clp_session *s, const char **ret_reason)
{
    *ret_reason = s->hook.reason;
    return s->hook.state == CLP_HOOK_RUNS;
}

enum clp_session_state clp_session_state(const struct clp_session *s)
{
    return s->state;
}

const struct clp_fault *clp_session_fault(const struct clp_session *s)
{
    return &s->fault;
}

uint64_t clp_session_marked(const struct clp_session *s, enum clp_counter counter)
{
    return s->reader ? clp_reader_marked(s->reader, counter) : 0;
}

uint64_t clp_session_opened_ns(const struct clp_session *s)
{
    return s->reader ? clp_reader_opened_ns(s->reader) : 0;
}

uint64_t clp_session_counter(const struct clp_session *s, enum clp_counter counter)
{
    return s->reader ? clp_reader_counter(s->reader, counter) : 0;
}

uint64_t clp_session_kept_seq(const struct clp_session *s)
{
    const struct clp_wire_header *h = s->memory;
    return h ? atomic_load_explicit(&h->kept_seq, memory_order_relaxed) : 0;
}

void clp_session_leave_seq(struct clp_session *s, uint64_t next)
{
    struct clp_wire_header *h = s->memory;
    if (h)
        atomic_store_explicit(&h->next_seq, next, memory_order_relaxed);
}

void clp_session_limits(const struct clp_session *s, char *buf, size_t cap)
{
    bool timers = s->refused_calls & CLP_HELLO_NO_TIMERS;
    bool readv = s->refused_calls & CLP_HELLO_NO_VM_READV;
    *buf = '\0';
    if (timers || readv)
        snprintf(buf, cap, "its seccomp filter refuses %s%s%s; allow the library that",
                 timers ? "timers on CPU clocks (timer_create): CPU time comes without stacks" : "",
                 timers && readv ? "; and " : "",
                 readv ? "process_vm_readv: reading memory takes longer" : "");
}

int clp_session_root_fd(const struct clp_session *s)
{
    return s->target.root_fd;
}
