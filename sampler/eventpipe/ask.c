/* The second half of discover.h: talking to the ports, and saying in words what came of it. */
#include "sampler/eventpipe/discover.h"

#include "base/clock.h"
#include "sampler/eventpipe/ipc_call.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ASK_AT_ONCE 64u

struct requests {
    struct clp_ipc_request info[CLP_IPC_INFO_3 + 1]; /* indexed by version */
};

struct question {
    struct clp_dotnet *d;
    struct clp_ipc_call call;
    enum clp_ipc_info_version version;
    bool open;
};

static void set_error(struct clp_dotnet *d, int error)
{
    d->error = error;
    switch (error) {
    case -ECONNREFUSED:
    case -ENOENT:
        d->state = CLP_DOTNET_STALE;
        break;
    case -EACCES:
    case -EPERM:
        d->state = CLP_DOTNET_DENIED;
        break;
    case -ETIMEDOUT:
    case -EAGAIN:
        d->state = CLP_DOTNET_SILENT;
        break;
    default:
        d->state = CLP_DOTNET_BROKEN;
    }
}

static void start(struct question *q, const struct requests *requests, uint64_t deadline_ns)
{
    int r = clp_ipc_call_start(&q->call, q->d->temp_fd, q->d->socket_name,
                               &requests->info[q->version], deadline_ns);
    q->open = r == 0;
    if (r < 0)
        set_error(q->d, r);
}

/* The listener's pid, where it can be seen, must be the process: another process of the same user
 * may have put its own socket in this place. */
static bool is_other_process(const struct question *q)
{
    int32_t peer = clp_ipc_call_peer(&q->call);
    return q->d->own_root && peer != 0 && peer != q->d->pid;
}

static bool is_unknown_command(const struct clp_ipc_reply *reply)
{
    uint32_t hr;
    return !reply->ok && clp_ipc_parse_hresult(reply, &hr) == 0 &&
           hr == CLP_HRESULT_UNKNOWN_COMMAND;
}

static int read_answer(struct question *q, const struct clp_ipc_reply *reply)
{
    int r = clp_ipc_parse_process_info(reply, q->version, &q->d->info);
    if (r < 0)
        return r;
    if (q->d->info.pid != (uint64_t)q->d->ns_pid || is_other_process(q))
        return -ESTALE;
    q->d->state = CLP_DOTNET_READY;
    q->d->error = 0;
    return 0;
}

/* One step of one question; an older runtime is asked again with the next older command. */
static void advance(struct question *q, const struct requests *requests, uint64_t now_ns)
{
    struct clp_ipc_reply reply;
    int r = clp_ipc_call_step(&q->call, now_ns, &reply);
    if (r == -EAGAIN)
        return;
    bool older = r == 0 && is_unknown_command(&reply) && q->version > CLP_IPC_INFO_1;
    if (r == 0 && !older)
        r = read_answer(q, &reply);
    uint64_t deadline_ns = q->call.deadline_ns;
    clp_ipc_call_done(&q->call);
    q->open = false;
    if (older) {
        q->version--;
        start(q, requests, deadline_ns);
    } else if (r < 0) {
        set_error(q->d, r);
    }
}

static void wait_for_any(const struct question *q, size_t count, uint64_t now_ns,
                         uint64_t deadline_ns)
{
    struct pollfd fds[ASK_AT_ONCE];
    nfds_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (q[i].open)
            fds[n++] =
                (struct pollfd){.fd = q[i].call.fd, .events = clp_ipc_call_events(&q[i].call)};
    uint64_t left_ms = now_ns < deadline_ns ? (deadline_ns - now_ns) / CLP_NSEC_PER_MSEC + 1 : 0;
    if (n)
        (void)poll(fds, n, (int)CLP_MIN(left_ms, 60000u));
}

static bool any_open(const struct question *q, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (q[i].open)
            return true;
    return false;
}

static void ask_group(struct question *q, size_t count, const struct requests *requests,
                      uint64_t patience_ns)
{
    uint64_t deadline_ns = clp_clock_monotonic_ns() + patience_ns;
    for (size_t i = 0; i < count; i++)
        start(&q[i], requests, deadline_ns);
    while (any_open(q, count)) {
        uint64_t now_ns = clp_clock_monotonic_ns();
        for (size_t i = 0; i < count; i++)
            if (q[i].open)
                advance(&q[i], requests, now_ns);
        wait_for_any(q, count, now_ns, deadline_ns);
    }
}

void clp_dotnet_ask(struct clp_dotnet *d, size_t count, uint64_t deadline_ns)
{
    struct requests requests;
    struct question group[ASK_AT_ONCE];
    size_t n = 0;
    for (enum clp_ipc_info_version v = CLP_IPC_INFO_1; v <= CLP_IPC_INFO_3; v++)
        clp_ipc_encode_process_info(&requests.info[v], v);
    for (size_t i = 0; i < count; i++) {
        if (d[i].state == CLP_DOTNET_PORT)
            group[n++] = (struct question){.d = &d[i], .version = CLP_IPC_INFO_3};
        if (n == ASK_AT_ONCE || (i + 1 == count && n > 0)) {
            ask_group(group, n, &requests, deadline_ns);
            n = 0;
        }
    }
}

int clp_dotnet_resume(const struct clp_dotnet *d, uint64_t deadline_ns)
{
    struct clp_ipc_request request;
    struct clp_ipc_call call;
    struct clp_ipc_reply reply;
    clp_ipc_encode_resume(&request);
    int r = clp_ipc_call_start(&call, d->temp_fd, d->socket_name, &request,
                               clp_clock_monotonic_ns() + deadline_ns);
    if (r < 0)
        return r;
    r = clp_ipc_call_run(&call, &reply);
    clp_ipc_call_done(&call);
    return r;
}

/* ---- in words ------------------------------------------------------------------------------ */

static void explain_denied(const struct clp_dotnet *d, const char *who, char *buf, size_t cap)
{
    uint32_t me = geteuid();
    if (me == 0)
        snprintf(buf, cap,
                 "%s belongs to uid %u, and this root lacks the rights to look into it; "
                 "give clrpulse CAP_SYS_PTRACE and CAP_DAC_OVERRIDE",
                 who, d->uid);
    else if (me == d->uid && getegid() != d->gid)
        snprintf(buf, cap,
                 "%s runs as this user with group %u, and this is group %u: the kernel shows its "
                 "files in /proc to the same user and group alone; run clrpulse as %u:%u or root",
                 who, d->gid, getegid(), d->uid, d->gid);
    else if (me == d->uid)
        snprintf(buf, cap,
                 "%s runs as this user but has closed its files in /proc (not dumpable); "
                 "run clrpulse as root",
                 who);
    else
        snprintf(buf, cap,
                 "%s belongs to uid %u and this is uid %u; run clrpulse as uid %u or root", who,
                 d->uid, me, d->uid);
}

static void explain_silent(const struct clp_dotnet *d, const char *who, char *buf, size_t cap)
{
    if (d->run_state == 'T' || d->run_state == 't')
        snprintf(buf, cap, "%s is stopped; let it run (kill -CONT %d) and try again", who, d->pid);
    else
        snprintf(buf, cap,
                 "%s does not answer on its diagnostics port: it is frozen, very busy, or another "
                 "tool holds the port; try again",
                 who);
}

static void explain_no_port(const struct clp_dotnet *d, const char *who, char *buf, size_t cap)
{
    if (d->error == -ELOOP)
        snprintf(
            buf, cap,
            "the temp directory %s of %s leads through a symbolic link, which is not followed; "
            "start it with TMPDIR set to the real path",
            d->temp_path, who);
    else
        snprintf(buf, cap,
                 "%s is a .NET process without a diagnostics port in %s: try again if it has only "
                 "just started, else start it without DOTNET_EnableDiagnostics=0 and "
                 "DOTNET_EnableDiagnostics_IPC=0, and with a TMPDIR that it may write",
                 who, d->temp_path);
}

void clp_dotnet_explain(const struct clp_dotnet *d, char *buf, size_t cap)
{
    char who[128];
    snprintf(who, sizeof(who), "process %d (%s)", d->pid, d->comm);
    switch (d->state) {
    case CLP_DOTNET_NO:
        snprintf(buf, cap, "%s is not a .NET process; `clrpulse ps` lists those that are", who);
        break;
    case CLP_DOTNET_HIDDEN:
    case CLP_DOTNET_DENIED:
        explain_denied(d, who, buf, cap);
        break;
    case CLP_DOTNET_NO_PORT:
        explain_no_port(d, who, buf, cap);
        break;
    case CLP_DOTNET_STALE:
        snprintf(buf, cap,
                 "nobody listens on the diagnostics port of %s; it is about to end, or "
                 "has lost the port and must be restarted",
                 who);
        break;
    case CLP_DOTNET_SILENT:
        explain_silent(d, who, buf, cap);
        break;
    case CLP_DOTNET_BROKEN:
        snprintf(buf, cap,
                 "the diagnostics port of %s answers as something else (%s); see who "
                 "owns %s/%s",
                 who, strerror(-d->error), d->temp_path, d->socket_name);
        break;
    case CLP_DOTNET_PORT:
    case CLP_DOTNET_READY:
        snprintf(buf, cap, "%s", "");
        break;
    }
}

#define OLDEST_MAJOR 8

bool clp_dotnet_unsupported(const struct clp_dotnet *d, char *buf, size_t cap)
{
    if (d->info.major >= OLDEST_MAJOR)
        return false;
    if (d->info.major > 0)
        snprintf(buf, cap,
                 "process %d (%s) runs .NET %s; .NET %d is the oldest that can be profiled", d->pid,
                 d->comm, d->info.runtime_version, OLDEST_MAJOR);
    else
        snprintf(buf, cap,
                 "process %d (%s) does not tell its runtime's version: it is older than .NET %d",
                 d->pid, d->comm, OLDEST_MAJOR);
    return true;
}
