/* clrpulse record: one profile of one process. */
#include "agent/cli/cli.h"

#include "agent/kinds.h"
#include "agent/library.h"
#include "agent/target.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/core/text.h"
#include "base/file.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DURATION_NS (10 * CLP_NSEC_PER_SEC)
#define CPU_INTERVAL_NS (10 * CLP_NSEC_PER_MSEC)
#define FIND_NS (2 * CLP_NSEC_PER_SEC) /* for a process that is just starting */
#define ASK_NS (3 * CLP_NSEC_PER_SEC)
#define PATH_BYTES 4096

struct recording {
    const struct clp_cli *cli;
    char path[PATH_BYTES];
    uint32_t types;
    bool leave_out_idle;
    int stop_fd;
    bool interrupted;
    bool terminal;
    struct clp_symbols *symbols;
    struct clp_target *target;
    bool have_profile;
    struct clp_fault write_fault; /* of the files */
    uint64_t samples;
    double cpu_ns, wall_ns;
};

/* ---- files --------------------------------------------------------------------------------- */

/* out.pb.gz of type cpu is out.cpu.pb.gz. */
static int split_path(const char *path, const char *type, char *ret, size_t cap)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *ending = strchr(*name == '.' ? name + 1 : name, '.');
    size_t stem = ending ? (size_t)(ending - path) : strlen(path);
    int n = snprintf(ret, cap, "%.*s.%s%s", (int)stem, path, type, ending ? ending : "");
    return n < 0 || (size_t)n >= cap ? -ENAMETOOLONG : 0;
}

static void write_encoded(struct recording *r, const char *path, int encoded_error,
                          struct clp_encoded *e)
{
    int error = encoded_error;
    if (error == 0) {
        error = clp_file_write(path, e->data, e->len, 0644);
        clp_encoded_done(e);
    }
    if (error < 0)
        (void)clp_fault_set(&r->write_fault, error == -EACCES ? -EIO : error, "cannot write %s: %s",
                            path, strerror(-error));
    else if (r->terminal)
        fprintf(stderr, "wrote %s: %llu samples, %.2f s of CPU, %.2f s of wall time\n", path,
                (unsigned long long)r->samples, r->cpu_ns / 1e9, r->wall_ns / 1e9);
}

static void write_split(struct recording *r, const struct clp_profile *p)
{
    for (int type = 0; type < CLP_TYPE_COUNT; type++) {
        char path[PATH_BYTES];
        struct clp_encoded e;
        if (!(r->types & (1u << type)))
            continue;
        int error = split_path(r->path, clp_profile_type_name((enum clp_profile_type)type), path,
                               PATH_BYTES);
        if (error == 0)
            error = clp_kind_encode(p, (enum clp_profile_type)type, &e);
        write_encoded(r, error == -ENAMETOOLONG ? r->path : path, error, &e);
    }
}

/* Why no sample tells its request; where it does, the labels say so themselves. */
static void say_spans(const struct recording *r, struct clp_profile *p, struct clp_target *t)
{
    const char *reason;
    bool has = clp_session_has_spans(clp_target_session(t), &reason);
    if (has || !*reason)
        return;
    (void)!clp_profile_comment(p, "spans=none: %s", reason);
    if (r->terminal && !r->cli->no_startup_hook)
        fprintf(stderr, "\r\033[Kno labels of spans: %s\n", reason);
}

static void take_window(void *context, struct clp_target *t, const struct clp_window *w)
{
    struct recording *r = context;
    const struct clp_dotnet *p = clp_target_process(t);
    int cpu = clp_profile_value_index(w->profile, "cpu");
    if (r->have_profile)
        return;
    r->have_profile = true;
    r->cpu_ns = cpu >= 0 ? clp_profile_total(w->profile, (size_t)cpu) : 0;
    int wall = clp_profile_value_index(w->profile, "wall");
    r->wall_ns = wall >= 0 ? clp_profile_total(w->profile, (size_t)wall) : 0;
    r->samples = clp_profile_sample_count(w->profile);
    (void)!clp_profile_comment(w->profile, "process=%d %s", p->pid, p->info.command_line);
    (void)!clp_profile_comment(w->profile, "runtime=.NET %s", p->info.runtime_version);
    say_spans(r, w->profile, t);
    if (r->cli->split) {
        write_split(r, w->profile);
        return;
    }
    struct clp_encoded e;
    int error = clp_profile_encode(w->profile, NULL, &e);
    write_encoded(r, r->path, error, &e);
}

/* Better now than after the recording. */
static int check_path(struct recording *r, struct clp_fault *f)
{
    char dir[PATH_BYTES], stamp[CLP_CLOCK_UTC_BYTES];
    struct stat st;
    int n = r->cli->output ? snprintf(r->path, sizeof(r->path), "%s", r->cli->output)
                           : snprintf(r->path, sizeof(r->path), "clrpulse-%d-%s.pb.gz", r->cli->pid,
                                      clp_clock_utc_compact(clp_clock_realtime_ns(), stamp));
    if (n < 0 || n >= PATH_BYTES - 64)
        return clp_fault_set(f, -ENAMETOOLONG, "the path of the file is too long");
    snprintf(dir, sizeof(dir), "%s", r->path);
    char *slash = strrchr(dir, '/');
    if (slash)
        slash[slash == dir ? 1 : 0] = '\0';
    const char *where = slash ? dir : ".";
    if (stat(r->path, &st) == 0 && S_ISDIR(st.st_mode))
        return clp_fault_set(f, -EISDIR, "%s is a directory; give the name of a file", r->path);
    if (access(where, W_OK | X_OK) < 0)
        return clp_fault_set(f, -EIO, "cannot write into %s: %s", where, strerror(errno));
    return 0;
}

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

static int find_once(const struct recording *r, struct clp_dotnet *d, struct clp_fault *f)
{
    int32_t pid = r->cli->pid;
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

static int find_process(const struct recording *r, struct clp_dotnet *d, struct clp_fault *f)
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

static void progress(const struct recording *r, uint64_t done_ns, uint64_t whole_ns)
{
    if (r->terminal)
        fprintf(stderr, "\rrecording process %d: %llu of %llu s ", r->cli->pid,
                (unsigned long long)(done_ns / CLP_NSEC_PER_SEC),
                (unsigned long long)(whole_ns / CLP_NSEC_PER_SEC));
}

/* Waits for events, at most the target's patience; notes an interrupt. */
static enum clp_session_state step(struct recording *r)
{
    struct pollfd fds[1 + CLP_SESSION_FDS] = {
        {.fd = r->interrupted ? -1 : r->stop_fd, .events = POLLIN}};
    nfds_t n = 1 + clp_session_fds(clp_target_session(r->target), fds + 1);
    (void)poll(fds, n, (int)(clp_target_patience_ns(r->target) / CLP_NSEC_PER_MSEC));
    if (fds[0].revents)
        r->interrupted = true;
    return clp_target_step(r->target, clp_clock_monotonic_ns());
}

static enum clp_session_state attach(struct recording *r)
{
    enum clp_session_state s = CLP_SESSION_ATTACHING;
    while (s == CLP_SESSION_ATTACHING && !r->interrupted)
        s = step(r);
    return s;
}

static enum clp_session_state collect(struct recording *r, uint64_t whole_ns)
{
    enum clp_session_state s = CLP_SESSION_LIVE;
    uint64_t start_ns = clp_target_window_start_ns(r->target), now_ns = start_ns;
    while (s == CLP_SESSION_LIVE && !r->interrupted && now_ns < start_ns + whole_ns) {
        s = step(r);
        now_ns = clp_clock_monotonic_ns();
        progress(r, CLP_MIN(now_ns - start_ns, whole_ns), whole_ns);
    }
    if (r->terminal)
        fputs("\r\033[K", stderr);
    return s;
}

static enum clp_session_state close_window(struct recording *r)
{
    enum clp_session_state s = CLP_SESSION_LIVE;
    clp_target_cut(r->target, clp_clock_monotonic_ns());
    while (s == CLP_SESSION_LIVE && clp_target_is_cutting(r->target))
        s = step(r);
    return s;
}

static int run(struct recording *r, struct clp_fault *f)
{
    uint64_t whole_ns = r->cli->duration_ns ? r->cli->duration_ns : DURATION_NS;
    enum clp_session_state s = CLP_SESSION_ATTACHING;
    while (s == CLP_SESSION_ATTACHING && !r->interrupted) {
        s = attach(r);
        if (s == CLP_SESSION_LIVE)
            s = collect(r, whole_ns); /* the library may ask for a second attach */
    }
    if (s == CLP_SESSION_ATTACHING)
        return clp_fault_set(f, -EINTR, "interrupted before the recording began");
    if (s == CLP_SESSION_LIVE)
        s = close_window(r);
    if (s == CLP_SESSION_LIVE)
        clp_session_bye(clp_target_session(r->target), true);
    else
        *f = *clp_session_fault(clp_target_session(r->target));
    if (r->write_fault.error)
        *f = r->write_fault;
    if (s == CLP_SESSION_ENDED && !f->error && !r->have_profile)
        return clp_fault_set(f, -ESRCH, "process %d ended before the recording began", r->cli->pid);
    if (s == CLP_SESSION_ENDED && !f->error)
        fprintf(stderr,
                "clrpulse: %s during the recording; what was taken until then is in the "
                "file\n",
                f->text);
    return f->error;
}

static int start(struct recording *r, struct clp_fault *f)
{
    struct clp_dotnet d;
    CLP_CLEANUP(clp_cleanup_free) char *library = NULL;
    int error = find_process(r, &d, f);
    if (error < 0)
        return error;
    error = clp_library_find(&library, f);
    if (error == 0 && clp_symbols_new(NULL, &r->symbols) < 0)
        error = clp_fault_set(f, -ENOMEM, "out of memory");
    if (error == 0) {
        struct clp_target_config c = {
            .library = library,
            .symbols = r->symbols,
            .settings = {.sample_kinds = clp_kinds_wire(r->types),
                         .cpu_interval_ns = CPU_INTERVAL_NS},
            .types = r->types,
            .leave_out_idle = r->leave_out_idle,
            .no_hook = r->cli->no_startup_hook ? "--no-startup-hook was given" : NULL,
            .window = take_window,
            .context = r,
        };
        error = clp_target_start(&d, &c, &r->target, f);
    }
    clp_dotnet_done(&d);
    return error;
}

int clp_command_record(const struct clp_cli *cli)
{
    struct clp_fault f = {0};
    struct recording r = {
        .cli = cli,
        .types = cli->types ? cli->types : 1u << CLP_TYPE_CPU | 1u << CLP_TYPE_WALL,
        .leave_out_idle = cli->idle && strcmp(cli->idle, "drop") == 0,
        .terminal = isatty(STDERR_FILENO),
    };
    if (cli->pid == 0) {
        fprintf(stderr, "clrpulse: record needs a process: -p PID; `clrpulse ps` lists them\n");
        return CLP_EXIT_USE;
    }
    if (cli->idle && strcmp(cli->idle, "keep") != 0 && strcmp(cli->idle, "drop") != 0) {
        fprintf(stderr, "clrpulse: --idle takes keep or drop, not '%.40s'\n", cli->idle);
        return CLP_EXIT_USE;
    }
    r.stop_fd = clp_stop_signals();
    int error = r.stop_fd < 0 ? clp_fault_set(&f, r.stop_fd, "cannot set up signals") : 0;
    if (error == 0)
        error = check_path(&r, &f);
    if (error == 0)
        error = start(&r, &f);
    if (error == 0)
        error = run(&r, &f);
    clp_target_free(r.target);
    clp_symbols_free(r.symbols);
    clp_cleanup_fd(&r.stop_fd);
    return error < 0 ? clp_exit_fault(&f) : CLP_EXIT_DONE;
}
