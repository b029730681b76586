/* clrpulse record: one profile of one process. */
#include "agent/cli/cli.h"

#include "agent/cli/recording.h"
#include "agent/library.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DURATION_NS (10 * CLP_NSEC_PER_SEC)
#define FIND_NS (2 * CLP_NSEC_PER_SEC) /* for a process that is just starting */
#define ASK_NS (3 * CLP_NSEC_PER_SEC)

/* ---- finding the process ------------------------------------------------------------------- */

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

/* A runtime opens its port some 50 ms after the start of its process. */
static bool may_be_starting(const struct clp_dotnet *d)
{
    return d->state == CLP_DOTNET_NO_PORT || d->state == CLP_DOTNET_STALE;
}

static int find_once(const struct clp_recording *r, struct clp_dotnet *d, struct clp_fault *f)
{
    int32_t pid = r->pid;
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

static int find_process(const struct clp_recording *r, struct clp_dotnet *d, struct clp_fault *f)
{
    uint64_t until_ns = clp_clock_monotonic_ns() + FIND_NS;
    int error = find_once(r, d, f);
    while (error == 0 && may_be_starting(d) && clp_clock_monotonic_ns() < until_ns) {
        struct pollfd stop = {.fd = r->stop_fd, .events = POLLIN};
        clp_dotnet_done(d);
        if (poll(&stop, 1, 100) > 0)
            return clp_fault_set(f, -EINTR, "interrupted");
        error = find_once(r, d, f);
    }
    if (error < 0)
        return error;
    error = state_error(d);
    f->error = error;
    if (error < 0)
        clp_dotnet_explain(d, f->text, sizeof(f->text));
    else if (clp_dotnet_unsupported(d, f->text, sizeof(f->text)))
        error = f->error = CLP_FAULT_REFUSED;
    if (error < 0)
        clp_dotnet_done(d);
    return error;
}

/* ---- recording ----------------------------------------------------------------------------- */

static int start(struct clp_recording *r, struct clp_fault *f)
{
    struct clp_dotnet d;
    struct clp_target_config c;
    CLP_CLEANUP(clp_cleanup_free) char *library = NULL;
    int error = find_process(r, &d, f);
    if (error < 0)
        return error;
    error = clp_library_find(&library, f);
    if (error == 0)
        error = clp_recording_prepare(r, library, &c, f);
    if (error == 0)
        error = clp_target_start(&d, &c, &r->target, f);
    clp_dotnet_done(&d);
    return error;
}

int clp_command_record(const struct clp_cli *cli)
{
    struct clp_fault f = {0};
    struct clp_recording r = {
        .output = cli->output,
        .whole_ns = cli->duration_ns ? cli->duration_ns : DURATION_NS,
        .types = cli->types ? cli->types : CLP_RECORDING_TYPES,
        .split = cli->split,
        .pid = cli->pid,
        .terminal = isatty(STDERR_FILENO),
    };
    if (cli->pid == 0) {
        fprintf(stderr, "clrpulse: record needs a process: -p PID; `clrpulse ps` lists them\n");
        return CLP_EXIT_USE;
    }
    if (!clp_recording_take_idle(&r, cli->idle))
        return CLP_EXIT_USE;
    r.stop_fd = clp_stop_signals();
    int error = r.stop_fd < 0 ? clp_fault_set(&f, r.stop_fd, "cannot set up signals") : 0;
    if (error == 0)
        error = clp_recording_check_path(&r, &f);
    if (error == 0)
        error = start(&r, &f);
    if (error == 0)
        error = clp_recording_run(&r, &f);
    clp_recording_done(&r);
    clp_cleanup_fd(&r.stop_fd);
    return error < 0 ? clp_exit_fault(&f) : CLP_EXIT_DONE;
}
