/* clrpulse record: one profile of one process. */
#include "agent/cli/cli.h"

#include "agent/check.h"
#include "agent/cli/record_eventpipe.h"
#include "agent/cli/recording.h"
#include "agent/engine.h"
#include "agent/library.h"
#include "agent/types.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DURATION_NS (10 * CLP_NSEC_PER_SEC)
#define NOT_BY_EVENTS (1u << CLP_TYPE_WAITS | 1u << CLP_TYPE_LIVEHEAP)
#define NOT_BY_EVENTS_TEXT "the engine eventpipe does not tell of waits and liveheap"

/* ---- engines ------------------------------------------------------------------------------- */

static int record_library(struct clp_recording *r, const struct clp_dotnet *d, struct clp_fault *f)
{
    struct clp_target_config c;
    CLP_CLEANUP(clp_cleanup_free) char *library = NULL;
    int error = clp_library_find(&library, f);
    if (error == 0)
        error = clp_recording_prepare(r, library, &c, f);
    if (error == 0)
        error = clp_target_start(d, &c, &r->target, f);
    return error < 0 ? error : clp_recording_run(r, f);
}

static int record_events(struct clp_recording *r, const struct clp_dotnet *d, struct clp_fault *f)
{
    CLP_CLEANUP(clp_profile_freep) struct clp_profile *profile = NULL;
    int error = clp_record_eventpipe(d, r->stop_fd, r->types_given ? r->types : 0,
                                     r->no_startup_hook ? CLP_SPANS_OFF : CLP_SPANS_FULL,
                                     r->whole_ns, &profile, f);
    if (error == 0)
        clp_recording_write(r, d, profile);
    if (r->write_fault.error)
        *f = r->write_fault;
    return f->error;
}

/* The library where it may be loaded; else what the runtime tells by itself, which costs it more.
 * What can be seen beforehand is not tried. */
static int record_either(struct clp_recording *r, const struct clp_dotnet *d, struct clp_fault *f)
{
    char why[CLP_FAULT_BYTES];
    if (!clp_engine_needs_events(d, why, sizeof(why))) {
        int error = record_library(r, d, f);
        bool refused = error == CLP_FAULT_REFUSED || error == CLP_FAULT_FULL;
        if (!refused || r->have_profile)
            return error;
        snprintf(why, sizeof(why), "%s", f->text);
        *f = (struct clp_fault){0};
    }
    if (r->types & NOT_BY_EVENTS)
        return clp_fault_set(f, CLP_FAULT_REFUSED, "%s; " NOT_BY_EVENTS_TEXT "; leave them out",
                             why);
    clp_print_sentence("%s; taking the engine eventpipe, which loads nothing", why);
    return record_events(r, d, f);
}

static int record_by(struct clp_recording *r, const char *engine, const struct clp_dotnet *d,
                     struct clp_fault *f)
{
    if (clp_types_told(r->types, d->info.major) != r->types)
        return clp_fault_set(f, CLP_FAULT_REFUSED,
                             "process %d runs .NET %s, which does not tell of waits for handles; "
                             "leave out the type waits, or run the program on .NET %d or newer",
                             d->pid, d->info.runtime_version, CLP_WIRE_WAITS_SINCE);
    if (!engine)
        return record_either(r, d, f);
    return strcmp(engine, "eventpipe") == 0 ? record_events(r, d, f) : record_library(r, d, f);
}

static int record(struct clp_recording *r, const char *engine, struct clp_fault *f)
{
    struct clp_dotnet d;
    int error = clp_find_process(r->pid, r->stop_fd, &d, f);
    if (error < 0)
        return error;
    char waits[CLP_FAULT_BYTES];
    if (clp_check_waits(&d, waits, sizeof(waits)))
        clp_print_sentence("%s", waits);
    error = record_by(r, engine, &d, f);
    clp_dotnet_done(&d);
    return error;
}

/* ---- command ------------------------------------------------------------------------------- */

static bool is_engine(const char *name)
{
    if (!name || strcmp(name, "library") == 0 || strcmp(name, "eventpipe") == 0)
        return true;
    clp_print_sentence("there is no engine '%.40s'; there are library and eventpipe", name);
    return false;
}

int clp_command_record(const struct clp_cli *cli)
{
    struct clp_fault f = {0};
    struct clp_recording r = {
        .output = cli->output,
        .whole_ns = cli->duration_ns ? cli->duration_ns : DURATION_NS,
        .types = cli->types ? cli->types : CLP_RECORDING_TYPES,
        .types_given = cli->types != 0,
        .split = cli->split,
        .no_startup_hook = cli->no_startup_hook,
        .pid = cli->pid,
        .terminal = isatty(STDERR_FILENO),
    };
    if (cli->pid == 0) {
        fprintf(stderr, "clrpulse: record needs a process: -p PID; `clrpulse ps` lists them\n");
        return CLP_EXIT_USE;
    }
    if (!is_engine(cli->engine) || !clp_recording_take_idle(&r, cli->idle))
        return CLP_EXIT_USE;
    if (r.leave_out_idle && cli->engine && strcmp(cli->engine, "eventpipe") == 0) {
        fprintf(stderr, "clrpulse: --idle drop needs the engine library: eventpipe cannot tell "
                        "which waits are idle ones\n");
        return CLP_EXIT_USE;
    }
    if (cli->types & NOT_BY_EVENTS && cli->engine && strcmp(cli->engine, "eventpipe") == 0) {
        fprintf(stderr, "clrpulse: " NOT_BY_EVENTS_TEXT "; leave them out, or take the engine "
                        "library\n");
        return CLP_EXIT_USE;
    }
    r.stop_fd = clp_stop_signals();
    int error = r.stop_fd < 0 ? clp_fault_set(&f, r.stop_fd, "cannot set up signals") : 0;
    if (error == 0)
        error = clp_recording_check_path(&r, &f);
    if (error == 0)
        error = record(&r, cli->engine, &f);
    clp_recording_done(&r);
    clp_cleanup_fd(&r.stop_fd);
    return error < 0 ? clp_exit_fault(&f) : CLP_EXIT_DONE;
}
