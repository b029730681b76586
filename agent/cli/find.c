/* The process that a command is about, or a sentence. */
#include "agent/cli/cli.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define FIND_NS (2 * CLP_NSEC_PER_SEC) /* for a process that is just starting */
#define ASK_NS (3 * CLP_NSEC_PER_SEC)

static int state_error(const struct clp_dotnet *d)
{
    switch (d->state) {
    case CLP_DOTNET_READY:
        return 0;
    case CLP_DOTNET_NO:
        return -ENOEXEC;
    case CLP_DOTNET_HIDDEN:
    case CLP_DOTNET_DENIED:
        return -EACCES;
    case CLP_DOTNET_NO_PORT:
        return CLP_FAULT_REFUSED;
    default:
        return -EIO;
    }
}

int clp_find_error(const struct clp_dotnet *d, struct clp_fault *f)
{
    f->error = state_error(d);
    if (f->error < 0)
        clp_dotnet_explain(d, f->text, sizeof(f->text));
    else if (clp_dotnet_unsupported(d, f->text, sizeof(f->text)))
        f->error = CLP_FAULT_REFUSED;
    return f->error;
}

/* A runtime opens its port some 50 ms after the start of its process. */
static bool may_be_starting(const struct clp_dotnet *d)
{
    return d->state == CLP_DOTNET_NO_PORT || d->state == CLP_DOTNET_STALE;
}

static int find_once(int32_t pid, struct clp_dotnet *d, struct clp_fault *f)
{
    int error = clp_dotnet_open(&clp_discover_system, pid, d);
    if (error == -ESRCH)
        return clp_fault_set(f, error,
                             "there is no process %d; `clrpulse ps` lists those that can "
                             "be profiled",
                             pid);
    if (error == -EACCES)
        return clp_fault_set(f, error,
                             "process %d is hidden from this user (/proc is mounted with "
                             "hidepid); run clrpulse as root",
                             pid);
    if (error < 0)
        return clp_fault_set(f, error, "cannot look at process %d: %s", pid, strerror(-error));
    clp_dotnet_look_closer(&clp_discover_system, d);
    clp_dotnet_ask(d, 1, ASK_NS);
    return 0;
}

int clp_find_process(int32_t pid, int stop_fd, struct clp_dotnet *d, struct clp_fault *f)
{
    uint64_t until_ns = clp_clock_monotonic_ns() + FIND_NS;
    int error = find_once(pid, d, f);
    while (error == 0 && may_be_starting(d) && clp_clock_monotonic_ns() < until_ns) {
        struct pollfd stop = {.fd = stop_fd, .events = POLLIN};
        clp_dotnet_done(d);
        if (poll(&stop, 1, 100) > 0)
            return clp_fault_set(f, -EINTR, "interrupted");
        error = find_once(pid, d, f);
    }
    if (error < 0)
        return error;
    error = clp_find_error(d, f);
    if (error < 0)
        clp_dotnet_done(d);
    return error;
}
