#include "agent/cli/recording.h"

#include "agent/cli/cli.h"
#include "agent/kinds.h"
#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CPU_INTERVAL_NS (10 * CLP_NSEC_PER_MSEC)

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

/* Time that nobody asked for is not there, which is not none. */
static void tell_written(const struct clp_recording *r, const char *path)
{
    fprintf(stderr, "wrote %s: %llu different samples", path, (unsigned long long)r->samples);
    if (r->types & (1u << CLP_TYPE_CPU))
        fprintf(stderr, ", %.2f s of CPU", r->cpu_ns / 1e9);
    if (r->types & (1u << CLP_TYPE_WALL))
        fprintf(stderr, ", %.2f s of wall time", r->wall_ns / 1e9);
    fputc('\n', stderr);
}

static void write_encoded(struct clp_recording *r, const char *path, int encoded_error,
                          struct clp_encoded *e)
{
    int error = encoded_error;
    if (error == 0) {
        error = r->to_stdout ? clp_file_write_fd(STDOUT_FILENO, e->data, e->len)
                             : clp_file_write(path, e->data, e->len, 0644);
        clp_encoded_done(e);
    }
    if (error < 0)
        (void)clp_fault_set(&r->write_fault, error == -EACCES ? -EIO : error, "cannot write %s: %s",
                            path, strerror(-error));
    else if (r->terminal)
        tell_written(r, path);
}

static void write_split(struct clp_recording *r, const struct clp_profile *p)
{
    for (int type = 0; type < CLP_TYPE_COUNT; type++) {
        char path[CLP_RECORDING_PATH_BYTES];
        struct clp_encoded e;
        if (!(r->types & (1u << type)))
            continue;
        int error = split_path(r->path, clp_profile_type_name((enum clp_profile_type)type), path,
                               CLP_RECORDING_PATH_BYTES);
        if (error == 0)
            error = clp_kind_encode(p, (enum clp_profile_type)type, &e);
        write_encoded(r, error == -ENAMETOOLONG ? r->path : path, error, &e);
    }
}

void clp_recording_write(struct clp_recording *r, const struct clp_dotnet *process,
                         struct clp_profile *profile)
{
    struct clp_encoded e;
    int cpu = clp_profile_value_index(profile, "cpu");
    int wall = clp_profile_value_index(profile, "wall");
    r->have_profile = true;
    r->cpu_ns = cpu >= 0 ? clp_profile_total(profile, (size_t)cpu) : 0;
    r->wall_ns = wall >= 0 ? clp_profile_total(profile, (size_t)wall) : 0;
    r->samples = clp_profile_sample_count(profile);
    (void)!clp_profile_comment(profile, "process=%d %s", process->pid, process->info.command_line);
    (void)!clp_profile_comment(profile, "runtime=.NET %s", process->info.runtime_version);
    if (r->split) {
        write_split(r, profile);
        return;
    }
    int error = clp_profile_encode(profile, NULL, &e);
    write_encoded(r, r->path, error, &e);
}

/* What nobody would look for in the profile's comments. */
static void say_timers(const struct clp_session *s)
{
    char limits[CLP_FAULT_BYTES];
    clp_session_limits(s, limits, sizeof(limits));
    if (*limits)
        clp_print_sentence("process %d: %s", clp_session_process(s)->pid, limits);
    else if (clp_session_counter(s, CLP_CTR_DROP_TIMER_QUOTA))
        fprintf(stderr,
                "clrpulse: threads were left without a timer, because the signal quota of the "
                "process's user is used up; raise RLIMIT_SIGPENDING (ulimit -i) to get stacks in "
                "the place of [no timer left]\n");
}

/* Why no sample tells its request; where it does, the labels say so themselves. */
static void say_spans(const struct clp_recording *r, struct clp_profile *p, struct clp_target *t)
{
    const char *reason;
    bool has = clp_session_has_spans(clp_target_session(t), &reason);
    if (has)
        return;
    if (!*reason)
        reason = "the recording ended before the start-up hook ran (an application that was "
                 "published trimmed never runs it)";
    (void)!clp_profile_comment(p, "spans=none: %s", reason);
    if (!r->terminal || r->no_startup_hook)
        return;
    fputs("\r\033[Kno labels of spans: ", stderr);
    clp_print_foreign(stderr, reason, SIZE_MAX); /* paths in it are the target's own */
    fputc('\n', stderr);
}

static void take_window(void *context, struct clp_target *t, const struct clp_window *w)
{
    struct clp_recording *r = context;
    if (r->have_profile)
        return;
    say_spans(r, w->profile, t);
    clp_recording_write(r, clp_target_process(t), w->profile);
    say_timers(clp_target_session(t));
    if (!w->marked && !w->last)
        clp_print_sentence("process %d did not answer at the recording's end, as one that is "
                           "stopped or gets no CPU; what it had not told by then is missing from "
                           "the profile",
                           clp_target_process(t)->pid);
}

int clp_recording_check_path(struct clp_recording *r, struct clp_fault *f)
{
    char dir[CLP_RECORDING_PATH_BYTES], stamp[CLP_CLOCK_UTC_BYTES];
    struct stat st;
    r->to_stdout = r->output && strcmp(r->output, "-") == 0;
    if (r->to_stdout && r->split)
        return clp_fault_set(f, -EINVAL, "--split makes several files; give -o a name, not -");
    if (r->to_stdout && isatty(STDOUT_FILENO))
        return clp_fault_set(f, -EINVAL, "a profile is no text; send standard output to a file");
    int n = r->output ? snprintf(r->path, sizeof(r->path), "%s", r->output)
                      : snprintf(r->path, sizeof(r->path), "clrpulse-%d-%s.pb.gz", r->pid,
                                 clp_clock_utc_compact(clp_clock_realtime_ns(), stamp));
    if (n < 0 || n >= CLP_RECORDING_PATH_BYTES - 64)
        return clp_fault_set(f, -ENAMETOOLONG, "the path of the file is too long");
    if (r->to_stdout)
        return 0;
    if (stat(r->path, &st) == 0 && S_ISDIR(st.st_mode))
        return clp_fault_set(f, -EISDIR, "%s is a directory; give the name of a file", r->path);
    if (stat(r->path, &st) == 0 && !S_ISREG(st.st_mode)) { /* written into, not replaced */
        if (access(r->path, W_OK) < 0)
            return clp_fault_set(f, -EIO, "cannot write into %s: %s", r->path, strerror(errno));
        return 0;
    }
    snprintf(dir, sizeof(dir), "%s", r->path);
    char *slash = strrchr(dir, '/');
    if (slash)
        slash[slash == dir ? 1 : 0] = '\0';
    const char *where = slash ? dir : ".";
    if (access(where, W_OK | X_OK) < 0)
        return clp_fault_set(f, -EIO, "cannot write into %s: %s", where, strerror(errno));
    return 0;
}

bool clp_recording_take_idle(struct clp_recording *r, const char *value)
{
    r->leave_out_idle = value && strcmp(value, "drop") == 0;
    if (!value || r->leave_out_idle || strcmp(value, "keep") == 0)
        return true;
    clp_print_sentence("--idle takes keep or drop, not '%.40s'", value);
    return false;
}

/* ---- recording ----------------------------------------------------------------------------- */

static int32_t pid_of(const struct clp_recording *r)
{
    int32_t pid = clp_target_process(r->target)->pid;
    return pid ? pid : r->pid;
}

static void progress(const struct clp_recording *r, uint64_t done_ns)
{
    unsigned long long done = done_ns / CLP_NSEC_PER_SEC, whole = r->whole_ns / CLP_NSEC_PER_SEC;
    if (!r->terminal)
        return;
    if (r->whole_ns == UINT64_MAX)
        fprintf(stderr, "\rrecording process %d: %llu s ", pid_of(r), done);
    else
        fprintf(stderr, "\rrecording process %d: %llu of %llu s ", pid_of(r), done, whole);
}

static int milliseconds_until(uint64_t then_ns)
{
    uint64_t now_ns = clp_clock_monotonic_ns();
    return now_ns < then_ns ? (int)((then_ns - now_ns) / CLP_NSEC_PER_MSEC) + 1 : 0;
}

/* Waits for events, until the target is due or `until_ns`; notes an interrupt. */
static enum clp_session_state step(struct clp_recording *r, uint64_t until_ns)
{
    struct pollfd fds[1 + CLP_SESSION_FDS] = {
        {.fd = r->interrupted ? -1 : r->stop_fd, .events = POLLIN}};
    nfds_t n = 1 + clp_session_fds(clp_target_session(r->target), fds + 1);
    uint64_t due_ns = clp_target_due_ns(r->target);
    (void)poll(fds, n, milliseconds_until(CLP_MIN(until_ns, due_ns)));
    if (fds[0].revents && !r->at_step)
        r->interrupted = true;
    if (r->at_step)
        r->at_step(r->context);
    return clp_target_step(r->target, clp_clock_monotonic_ns());
}

static enum clp_session_state attach(struct clp_recording *r)
{
    enum clp_session_state s = CLP_SESSION_ATTACHING;
    while (s == CLP_SESSION_ATTACHING && !r->interrupted)
        s = step(r, UINT64_MAX);
    return s;
}

/* The window begins some time after the hand-shake, when the library tells. */
static uint64_t window_end_ns(const struct clp_recording *r)
{
    uint64_t start_ns = clp_target_window_start_ns(r->target);
    return r->whole_ns < UINT64_MAX - start_ns ? start_ns + r->whole_ns : UINT64_MAX;
}

static enum clp_session_state collect(struct clp_recording *r)
{
    enum clp_session_state s = CLP_SESSION_LIVE;
    uint64_t done_ns = 0;
    while (s == CLP_SESSION_LIVE && !r->interrupted && done_ns < r->whole_ns) {
        s = step(r, window_end_ns(r));
        done_ns = clp_clock_monotonic_ns() - clp_target_window_start_ns(r->target);
        progress(r, CLP_MIN(done_ns, r->whole_ns));
    }
    if (r->terminal)
        fputs("\r\033[K", stderr);
    return s;
}

static enum clp_session_state close_window(struct clp_recording *r)
{
    enum clp_session_state s = CLP_SESSION_LIVE;
    clp_target_cut(r->target, clp_clock_monotonic_ns());
    while (s == CLP_SESSION_LIVE && clp_target_is_cutting(r->target))
        s = step(r, UINT64_MAX);
    return s;
}

int clp_recording_run(struct clp_recording *r, struct clp_fault *f)
{
    enum clp_session_state s = attach(r);
    if (s == CLP_SESSION_LIVE)
        s = collect(r);
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
        return clp_fault_set(f, -ESRCH, "process %d ended before the recording began", pid_of(r));
    if (s == CLP_SESSION_ENDED && !f->error && !r->ends_with_target)
        clp_print_sentence("%s during the recording; %s", f->text,
                           r->samples ? "what was taken until then is in the file"
                                      : "no sample had come by then, so the file holds none");
    return f->error;
}

int clp_recording_prepare(struct clp_recording *r, const char *library,
                          struct clp_target_config *ret, struct clp_fault *f)
{
    if (clp_symbols_new(NULL, &r->symbols) < 0)
        return clp_fault_set(f, -ENOMEM, "out of memory");
    clp_walltime_init(&r->walltime, clp_clock_monotonic_ns(), clp_clock_realtime_ns());
    *ret = (struct clp_target_config){
        .library = library,
        .symbols = r->symbols,
        .settings = {.sample_kinds = clp_kinds_wire(r->types), .cpu_interval_ns = CPU_INTERVAL_NS},
        .types = r->types,
        .leave_out_idle = r->leave_out_idle,
        .no_hook = r->no_startup_hook ? "--no-startup-hook was given" : NULL,
        .walltime = &r->walltime,
        .window = take_window,
        .context = r,
    };
    return 0;
}

void clp_recording_done(struct clp_recording *r)
{
    r->target = clp_target_free(r->target);
    r->symbols = clp_symbols_free(r->symbols);
}
