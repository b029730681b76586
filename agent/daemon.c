#include "agent/daemon.h"

#include "agent/daemon_parts.h"
#include "agent/library.h"
#include "agent/numbers.h"
#include "agent/status.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

#include <errno.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* Together below the five seconds that an end may take. */
#define LAST_WINDOWS_NS (2200 * CLP_NSEC_PER_MSEC) /* the targets' time to answer at the end */
#define LAST_UPLOADS_NS (2000 * CLP_NSEC_PER_MSEC)
#define OLD_UPLOADS_NS CLP_NSEC_PER_SEC /* when other destinations take their place */

#define STOPPED_NS (5 * CLP_NSEC_PER_SEC) /* without a round: we have been stopped */
/* Reading symbols may keep the loop from its other work for that long at most. */
static const struct clp_symbols_limits symbols_limits = {.load_ns = CLP_NSEC_PER_SEC};

/* ---- clocks -------------------------------------------------------------------------------- */

static void watch_wall_clock(struct clp_daemon *d)
{
    int64_t step_ns;
    enum clp_walltime_step step = clp_walltime_check(&d->walltime, clp_clock_monotonic_ns(),
                                                     clp_clock_realtime_ns(), &step_ns);
    if (step == CLP_WALLTIME_FOLLOWED)
        clp_log_warning("the wall clock was set by %+.3f s; windows follow it from the next one on",
                        (double)step_ns / 1e9);
    else if (step == CLP_WALLTIME_HELD)
        clp_log_warning("the wall clock was set by %+.3f s; so that no two windows carry the same "
                        "time, profiles stay %.3f s ahead of it",
                        (double)step_ns / 1e9, (double)d->walltime.ahead_ns / 1e9);
}

/* A round takes a second at most, unless we do not run. */
static void watch_pace(uint64_t last_ns, uint64_t now_ns)
{
    if (now_ns - last_ns >= STOPPED_NS)
        clp_log_warning("the agent has not run for %.1f s (stopped, frozen, or without a CPU); "
                        "windows that were open are that much longer",
                        (double)(now_ns - last_ns) / 1e9);
}

/* ---- status -------------------------------------------------------------------------------- */

static struct clp_status measure(struct clp_daemon *d,
                                 struct clp_outbox_lane lanes[CLP_CONFIG_UPLOADS_MAX])
{
    struct clp_status s = {
        .config_path = d->options.config_path,
        .now_ns = clp_clock_monotonic_ns(),
        .started_ns = d->started_ns,
        .period_ns = d->options.config->profile_period,
        .roster = &d->roster,
        .walltime = &d->walltime,
        .limits = &d->limits,
        .lanes = lanes,
        .lane_count = clp_outbox_lanes(d->outbox, lanes, CLP_CONFIG_UPLOADS_MAX),
    };
    clp_port_get_counts(d->port, &s.port);
    clp_status_measure_self(&s);
    for (size_t i = 0; i < d->roster.count; i++)
        clp_daemon_count(d->roster.members[i]);
    return s;
}

/* One line: what the agent does with a process and why. */
static void answer_about(const struct clp_daemon *d, long pid, struct clp_strbuf *ret)
{
    for (size_t i = 0; i < d->roster.count; i++) {
        const struct clp_member *m = d->roster.members[i];
        if (m->pid == pid && m->state != CLP_MEMBER_GONE)
            clp_strbuf_printf(ret, "%s%s%s", clp_member_state_name(m->state),
                              *m->reason ? ": " : "", m->reason);
    }
    clp_strbuf_str(ret, "\n");
}

static void answer(void *context, const char *question, struct clp_strbuf *ret)
{
    struct clp_daemon *d = context;
    struct clp_outbox_lane lanes[CLP_CONFIG_UPLOADS_MAX];
    struct clp_status s = measure(d, lanes);
    if (strncmp(question, "pid ", 4) == 0)
        answer_about(d, strtol(question + 4, NULL, 10), ret);
    else if (strcmp(question, "json") == 0)
        clp_status_json(&s, ret);
    else if (strcmp(question, "audit") == 0)
        clp_status_audit(&s, ret);
    else
        clp_status_text(&s, ret);
}

static void answer_metrics(void *context, struct clp_strbuf *ret)
{
    struct clp_outbox_lane lanes[CLP_CONFIG_UPLOADS_MAX];
    struct clp_status s = measure(context, lanes);
    clp_numbers_metrics(&s, ret);
}

/* Only what another start could put right: a destination that is down is not of that kind. */
static enum clp_health_state answer_health(void *context, struct clp_strbuf *ret_reason)
{
    const struct clp_daemon *d = context;
    if (d->scan_error < 0) {
        clp_strbuf_str(ret_reason, strerror(-d->scan_error));
        return CLP_HEALTH_BLIND;
    }
    return d->stopping ? CLP_HEALTH_STOPPING : CLP_HEALTH_OK;
}

/* ---- settings ------------------------------------------------------------------------------ */

static bool same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

static bool same_upload_key(const struct clp_config_upload *a, const struct clp_config_upload *b,
                            const struct clp_config_upload_key *k)
{
    const void *in_a = (const char *)a + k->offset, *in_b = (const char *)b + k->offset;
    switch (k->kind) {
    case CLP_CONFIG_UPLOAD_DURATION:
    case CLP_CONFIG_UPLOAD_SIZE:
        return *(const uint64_t *)in_a == *(const uint64_t *)in_b;
    default:
        return same_text(*(char *const *)in_a, *(char *const *)in_b);
    }
}

static bool same_upload(const struct clp_config_upload *a, const struct clp_config_upload *b)
{
    bool same = same_text(a->kind, b->kind) && a->headers.count == b->headers.count;
    for (size_t i = 0; same && i < clp_config_upload_key_count(); i++)
        same = same_upload_key(a, b, clp_config_upload_key_at(i));
    for (size_t i = 0; same && i < a->headers.count; i++)
        same = same_text(a->headers.items[i], b->headers.items[i]);
    return same;
}

static bool same_destinations(const struct clp_config *a, const struct clp_config *b)
{
    bool same = a->upload_count == b->upload_count && same_text(a->spool_dir, b->spool_dir) &&
                a->spool_max_size == b->spool_max_size && a->spool_max_age == b->spool_max_age;
    for (size_t i = 0; same && i < a->upload_count; i++)
        same = same_upload(&a->uploads[i], &b->uploads[i]);
    return same;
}

/* An outbox that stays uses the texts that it was made with: they move on to the settings that
 * live, and go with the next destinations. */
static void hand_on_destinations(struct clp_config *old, struct clp_config *fresh)
{
    for (size_t i = 0; i < old->upload_count; i++) {
        struct clp_config_upload u = old->uploads[i];
        old->uploads[i] = fresh->uploads[i];
        fresh->uploads[i] = u;
    }
    char *dir = old->spool_dir;
    old->spool_dir = fresh->spool_dir;
    fresh->spool_dir = dir;
}

static void tell_what_waits(const struct clp_config *old, const struct clp_config *fresh)
{
    if (!same_text(old->state_dir, fresh->state_dir))
        clp_log_warning("state.dir is taken over when the agent is started again");
    if (!same_text(old->targets_diagnostic_port, fresh->targets_diagnostic_port))
        clp_log_warning("targets.diagnostic_port is taken over when the agent is started again");
    if (!same_text(old->health_listen, fresh->health_listen))
        clp_log_warning("health.listen is taken over when the agent is started again");
}

/* All or nothing: what cannot be used leaves everything as it was. */
static void reload(struct clp_daemon *d)
{
    struct clp_config fresh, old = *d->options.config;
    struct clp_config_error error = {""};
    struct clp_outbox *outbox = NULL;
    struct clp_fault fault = {0};
    if (d->options.reread(d->options.context, &fresh, &error) < 0) {
        clp_log_error("the settings stay as they were: %s", error.text);
        return;
    }
    if (!same_destinations(&old, &fresh) &&
        clp_outbox_new(&fresh, d->outbox, &outbox, &fault) < 0) {
        clp_log_error("the settings stay as they were: %s", fault.text);
        clp_config_done(&fresh);
        return;
    }
    tell_what_waits(&old, &fresh);
    if (!outbox)
        hand_on_destinations(&old, &fresh);
    *d->options.config = fresh;
    clp_log_setup(fresh.log_level, fresh.log_format == CLP_CONFIG_LOG_JSON, STDERR_FILENO);
    if (outbox) {
        clp_outbox_replace(d->outbox, outbox, clp_clock_monotonic_ns() + OLD_UPLOADS_NS);
        d->outbox = outbox;
    }
    clp_config_done(&old);
    clp_daemon_resettle(d);
    clp_log_info("the settings were read anew");
}

/* ---- memory -------------------------------------------------------------------------------- */

#define TRIM_EVERY_NS (60 * CLP_NSEC_PER_SEC)
#define TRIM_AFTER_NS (5 * CLP_NSEC_PER_SEC) /* a profile has been converted and sent by then */
#define TRIM_APART_NS (15 * CLP_NSEC_PER_SEC)

/* The tables of a window are large and short-lived: with a fixed bound they are mapped, and go back
 * to the kernel when they are freed, instead of leaving holes in the heap. */
static void set_up_memory(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, 128 << 10);
    (void)mallopt(M_ARENA_MAX, 2);
#endif
}

/* What many targets that came and went have left between what is in use; and what it took to
 * convert a profile, some times its size, soon after and not a window later. */
static void give_memory_back(struct clp_daemon *d, uint64_t now_ns)
{
    bool handed = d->handed_ns && now_ns >= d->handed_ns + TRIM_AFTER_NS;
    if (now_ns - d->trimmed_ns < (handed ? TRIM_APART_NS : TRIM_EVERY_NS))
        return;
    d->trimmed_ns = now_ns;
    d->handed_ns = 0;
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

/* ---- the loop ------------------------------------------------------------------------------ */

static bool take_signal(int fd)
{
    struct signalfd_siginfo info;
    return fd >= 0 && read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info);
}

static struct pollfd fds[4 + CLP_STATUS_FDS + CLP_DAEMON_TARGETS_MAX * CLP_TARGET_FDS];

/* The descriptors of all targets, from fds[n] on; their number. *until_ns comes down to what is due
 * first. */
static nfds_t add_targets(const struct clp_daemon *d, nfds_t n, uint64_t *until_ns)
{
    for (size_t i = 0; i < d->roster.count; i++) {
        struct clp_member *m = d->roster.members[i];
        m->fd_count = m->target ? clp_target_fds(m->target, fds + n) : 0;
        n += m->fd_count;
        uint64_t due_ns = m->target ? clp_daemon_due_ns(d, m) : UINT64_MAX;
        *until_ns = CLP_MIN(*until_ns, due_ns);
    }
    return n;
}

static void wake_targets(const struct clp_daemon *d, nfds_t n)
{
    for (size_t i = 0; i < d->roster.count; i++) {
        struct clp_member *m = d->roster.members[i];
        for (size_t k = 0; k < m->fd_count; k++)
            m->woken |= fds[n++].revents != 0;
    }
}

/* Sleeps until there is something to do, at most until `until_ns`. */
static void wait_for_events(struct clp_daemon *d, uint64_t until_ns)
{
    nfds_t n = 0;
    fds[n++] = (struct pollfd){.fd = d->stopping ? -1 : d->options.stop_fd, .events = POLLIN};
    fds[n++] = (struct pollfd){.fd = d->stopping ? -1 : d->options.reload_fd, .events = POLLIN};
    fds[n++] = (struct pollfd){.fd = d->stopping ? -1 : clp_port_fd(d->port), .events = POLLIN};
    fds[n++] = (struct pollfd){.fd = clp_health_fd(d->health), .events = POLLIN};
    n += clp_status_fds(d->status, fds + n);
    nfds_t first = n;
    n = add_targets(d, n, &until_ns);
    uint64_t now_ns = clp_clock_monotonic_ns();
    int ms = now_ns < until_ns ? (int)((until_ns - now_ns) / CLP_NSEC_PER_MSEC) + 1 : 0;
    if (poll(fds, n, ms) > 0)
        wake_targets(d, first);
    if (fds[0].revents)
        d->stopping = true;
}

/* When the next one is due. */
static uint64_t scan(struct clp_daemon *d)
{
    uint64_t before_ns = clp_kernel_cpu_ns(getpid()), after_ns;
    clp_daemon_scan(d);
    after_ns = clp_kernel_cpu_ns(getpid());
    return clp_clock_monotonic_ns() +
           clp_scan_pause_ns(
               clp_limits_cost_ns(&d->limits, after_ns > before_ns ? after_ns - before_ns : 0));
}

/* A round's work for those who watch the agent. */
static void tell(struct clp_daemon *d)
{
    uint64_t now_ns = clp_clock_monotonic_ns();
    clp_status_step(d->status, now_ns);
    clp_health_step(d->health);
    clp_notify_alive(&d->notify, now_ns);
    clp_notify_status(&d->notify, "%zu of %zu .NET processes under profile", d->targets,
                      d->roster.count - clp_roster_gone(&d->roster));
}

static void run(struct clp_daemon *d)
{
    uint64_t scan_at_ns = 0, last_ns = clp_clock_monotonic_ns();
    while (!d->stopping) {
        uint64_t now_ns = clp_clock_monotonic_ns();
        watch_pace(last_ns, now_ns);
        last_ns = now_ns;
        watch_wall_clock(d);
        give_memory_back(d, now_ns);
        if (clp_port_take(d->port)) {
            clp_scan_hurry(d->scan);
            scan_at_ns = 0;
        }
        if (now_ns >= scan_at_ns)
            scan_at_ns = scan(d);
        wait_for_events(d, scan_at_ns);
        if (take_signal(d->options.reload_fd)) {
            clp_notify_reloading(&d->notify);
            reload(d);
            clp_notify_send(&d->notify, "READY=1");
        }
        clp_daemon_step(d);
        tell(d);
    }
}

/* ---- the end ------------------------------------------------------------------------------- */

static bool cut_all(struct clp_daemon *d, uint64_t now_ns)
{
    bool any = false;
    for (size_t i = 0; i < d->roster.count; i++) {
        struct clp_target *t = d->roster.members[i]->target;
        if (t && now_ns)
            clp_target_cut(t, now_ns);
        any |= t && clp_target_is_cutting(t);
    }
    return any;
}

static void finish(struct clp_daemon *d)
{
    uint64_t now_ns = clp_clock_monotonic_ns();
    uint64_t until_ns = now_ns + LAST_WINDOWS_NS;
    clp_notify_send(&d->notify, "STOPPING=1");
    clp_log_info("stopping: the last profiles are taken and delivered");
    d->port = clp_port_stop(d->port);
    bool cutting = cut_all(d, now_ns);
    while (cutting && clp_clock_monotonic_ns() < until_ns) {
        wait_for_events(d, until_ns);
        clp_daemon_step(d);
        tell(d);
        cutting = cut_all(d, 0);
    }
    clp_daemon_leave_all(d, d->options.detach_on_exit);
    (void)clp_outbox_drain(d->outbox, clp_clock_monotonic_ns() + LAST_UPLOADS_NS);
}

/* ---- the beginning ------------------------------------------------------------------------- */

/* Sessions of the engine eventpipe that a killed agent left are stopped first. */
static void open_journal(struct clp_daemon *d)
{
    char folder[4096];
    int n = snprintf(folder, sizeof(folder), "%s/eventpipe", d->options.config->state_dir);
    int r = n < (int)sizeof(folder) ? clp_journal_open(folder, &d->journal) : -ENAMETOOLONG;
    if (r == 0)
        r = clp_journal_recover(d->journal);
    if (r < 0)
        clp_log_debug("open EventPipe sessions cannot be noted in state.dir: %s", strerror(-r));
}

static void note_found(void *context, const char *runtime, uint64_t seq)
{
    clp_seq_found(context, runtime, seq);
}

/* Without a state directory the agent works, but only that long. */
static int open_state(struct clp_daemon *d, struct clp_fault *fault)
{
    const char *dir = d->options.config->state_dir;
    struct clp_fault why = {0};
    int r = clp_file_mkdir_p(dir, 0750);
    if (r == 0)
        r = clp_status_listen(dir, answer, d, &d->status, &why);
    if (r == -EADDRINUSE) {
        *fault = why;
        return r;
    }
    if (r < 0)
        clp_log_warning("%s", why.error ? why.text
                                        : "state.dir cannot be made: there will be no "
                                          "`clrpulse status`");
    if (clp_seq_new(dir, &d->seq, &why) < 0) {
        if (!d->seq)
            return clp_fault_set(fault, -ENOMEM, "out of memory");
        clp_log_warning("%s", why.text);
    }
    /* There may be no spool yet. */
    (void)!clp_spool_numbers(d->options.config->spool_dir, note_found, d->seq);
    open_journal(d);
    return 0;
}

static int start_health(struct clp_daemon *d, struct clp_fault *fault)
{
    const struct clp_health_answers answers = {
        .health = answer_health, .metrics = answer_metrics, .context = d};
    const char *listen = d->options.config->health_listen;
    int r = clp_health_start(listen, &answers, &d->health, fault);
    if (r == 0)
        clp_log_info("/healthz and /metrics answer on %s (port %u)", listen,
                     clp_health_port(d->health));
    return r;
}

/* A small place: less is done, and told. */
static void look_around(struct clp_daemon *d)
{
    clp_limits_read("/proc", "/sys/fs/cgroup", 0, &d->limits);
    if (d->limits.millicores < 1000)
        clp_log_info("the control group allows the agent %.2f cores: it looks for processes more "
                     "rarely where that costs much",
                     d->limits.millicores / 1000.0);
    if (clp_limits_share(&d->limits, 1) > 1)
        clp_log_info("the control group allows the agent %llu MiB of memory: it keeps smaller "
                     "tables of each process",
                     (unsigned long long)(d->limits.memory_bytes >> 20));
}

static int set_up(struct clp_daemon *d, struct clp_fault *fault)
{
    const struct clp_config *c = d->options.config;
    int r = clp_library_find(&d->library, fault);
    if (r < 0)
        return r;
    if (clp_symbols_new(&symbols_limits, &d->symbols) < 0 ||
        clp_scan_new(&clp_discover_system, &d->scan) < 0)
        return clp_fault_set(fault, -ENOMEM, "out of memory");
    r = open_state(d, fault);
    if (r == 0)
        r = clp_outbox_new(c, NULL, &d->outbox, fault);
    if (r == 0 && *c->targets_diagnostic_port)
        r = clp_port_start(c->targets_diagnostic_port, &d->port, fault);
    if (r == 0 && *c->health_listen)
        r = start_health(d, fault);
    return r;
}

static void tear_down(struct clp_daemon *d)
{
    clp_health_stop(d->health);
    clp_notify_done(&d->notify);
    clp_port_stop(d->port);
    clp_roster_done(&d->roster);
    clp_journal_close(d->journal);
    clp_outbox_free(d->outbox);
    clp_status_close(d->status);
    clp_seq_free(d->seq);
    clp_scan_free(d->scan);
    clp_symbols_free(d->symbols);
    free(d->library);
}

int clp_daemon_run(const struct clp_daemon_options *o, struct clp_fault *fault)
{
    static struct clp_daemon d; /* too large for a stack */
    d = (struct clp_daemon){.options = *o, .started_ns = clp_clock_monotonic_ns()};
    set_up_memory();
    clp_walltime_init(&d.walltime, clp_clock_monotonic_ns(), clp_clock_realtime_ns());
    clp_notify_init(&d.notify);
    look_around(&d);
    int r = set_up(&d, fault);
    if (r == 0) {
        clp_notify_send(&d.notify, "READY=1");
        if (clp_discover_hides(&clp_discover_system))
            clp_log_warning("/proc shows this user only its own processes (hidepid); run the "
                            "agent as root to profile all");
        clp_log_info("the agent is up; it looks for .NET processes all the time");
        run(&d);
        finish(&d);
    }
    tear_down(&d);
    return r;
}
