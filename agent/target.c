#include "agent/target.h"

#include "agent/status.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* A library that is alive answers within a millisecond or two; one that is not is not worth a look
 * every two. */
#define FIRST_MARK_POLL_NS (2 * CLP_NSEC_PER_MSEC)
#define LAST_MARK_POLL_NS (64 * CLP_NSEC_PER_MSEC)
/* A ring that fills slowly is emptied seldom. What the CPUs of the machine, up to the 16 that the
 * largest ring is for, let a target write in the longest pause still fits: 80 samples of 800 bytes
 * in CLP_SESSION_RING_CPU_BYTES. And a ring that was full makes samples coarser, not fewer
 * nanoseconds. */
#define LONGEST_DRAIN_NS (8 * CLP_SESSION_DRAIN_NS)
#define LONGEST_DRAIN_SAMPLES 80u
#define BUSY_SHARE 8   /* of the ring: from then on it is emptied as often as can be */
#define QUIET_SHARE 32 /* less than that: half as often as before */

struct clp_target {
    struct clp_target_config config;
    struct clp_session *session;
    struct clp_build *build;
    struct clp_epe *events; /* instead of both */
    struct clp_dotnet process;
    struct clp_fault ended_how;

    uint64_t start_ns;      /* of the window, CLOCK_MONOTONIC; 0 while attaching */
    uint64_t start_unix_ns; /* its stamp */
    uint32_t types;         /* that its profile shows */
    uint64_t era;           /* of config.walltime, when it was stamped */
    uint64_t flush_id;      /* of the last FLUSH */
    uint64_t mark_until_ns; /* the window is being cut; 0 otherwise */
    bool opened;            /* the first window begins where the library says, or has ended */
    bool ended;             /* the last window has been given */
    uint64_t mark_poll_ns;  /* the next look for the MARK is that much later */
    uint64_t drain_ns;      /* how often the ring is emptied now */
    uint64_t due_ns;        /* the next step without an event */
    uint64_t last_words_ns; /* the library's own last MARK: nothing comes after it */

    struct clp_window held; /* config.names_later; its profile is NULL when there is none */
};

/* ---- the window ---------------------------------------------------------------------------- */

/* The first window, or the first after the wall clock has stepped. */
static void stamp(struct clp_target *t)
{
    t->start_unix_ns = clp_walltime_of(t->config.walltime, t->start_ns);
    t->era = t->config.walltime->era;
}

static void begin_first(struct clp_target *t, uint64_t now_ns)
{
    t->start_ns = now_ns;
    stamp(t);
}

/* Some time passes between the hand-shake and that: sessions of events have to start. The library's
 * word is believed inside that time only. */
static void heed_opening(struct clp_target *t, uint64_t now_ns)
{
    uint64_t opened_ns = t->opened ? 0 : clp_session_opened_ns(t->session);
    if (!opened_ns)
        return;
    t->opened = true;
    if (opened_ns > t->start_ns && opened_ns <= now_ns)
        begin_first(t, opened_ns);
}

static void begin_next(struct clp_target *t, uint64_t start_ns, uint64_t length_ns)
{
    t->opened = true;
    t->start_ns = start_ns;
    t->start_unix_ns += length_ns;
    if (t->era != t->config.walltime->era)
        stamp(t);
}

static int32_t pid_of(const struct clp_target *t)
{
    return clp_target_process(t)->pid;
}

/* The window that waited for the names of its requests. */
static void give_held(struct clp_target *t)
{
    struct clp_window w = t->held;
    t->held = (struct clp_window){0};
    if (!w.profile)
        return;
    clp_build_name(t->build, w.profile);
    t->config.window(t->config.context, t, &w);
    clp_profile_free(w.profile);
}

static void give_window(struct clp_target *t, uint64_t end_ns, bool marked, bool last)
{
    struct clp_window w = {.start_unix_ns = t->start_unix_ns,
                           .duration_ns = end_ns - t->start_ns,
                           .start_ns = t->start_ns,
                           .samples = clp_target_samples(t),
                           .types = t->types,
                           .marked = marked,
                           .last = last,
                           .kernel_cpu_ns = clp_kernel_cpu_ns(pid_of(t))};
    struct clp_build_window b = {.start_unix_ns = w.start_unix_ns, .duration_ns = w.duration_ns};
    for (unsigned c = 0; c < CLP_CTR_COUNT; c++)
        b.counters[c] = marked ? clp_session_marked(t->session, (enum clp_counter)c)
                               : clp_session_counter(t->session, (enum clp_counter)c);
    begin_next(t, end_ns, w.duration_ns);
    t->mark_until_ns = 0;
    give_held(t);
    if (clp_build_finish(t->build, &b, &w.profile) < 0) {
        clp_log_error("process %d: a window was lost: out of memory", pid_of(t));
        return;
    }
    t->types = t->config.types;
    if (!marked)
        (void)!clp_profile_comment(w.profile, "window_end=not confirmed by the library");
    w.requests = clp_build_requests(t->build, &w.request_count);
    w.counted = clp_build_counted(t->build);
    w.exceptions = clp_build_exceptions(t->build);
    t->held = w;
    if (last || !t->config.names_later || clp_build_open_roots(t->build) == 0)
        give_held(t);
}

/* The target's time is believed inside the window only. */
static void take_mark(struct clp_target *t, const struct clp_rec_mark *mark)
{
    uint64_t now_ns = clp_clock_monotonic_ns();
    uint64_t end_ns = mark->time_ns;
    if (end_ns <= t->start_ns || end_ns > now_ns)
        end_ns = now_ns;
    if (mark->flush_id == 0)
        t->last_words_ns = end_ns;
    else if (mark->flush_id == t->flush_id && t->mark_until_ns)
        give_window(t, end_ns, true, false);
}

static void take_record(void *context, const struct clp_reader_record *record)
{
    struct clp_target *t = context;
    if (record->type == CLP_REC_MARK)
        take_mark(t, record->mark.rec);
    else if (t->build)
        clp_build_record(t->build, record);
}

/* ---- life ---------------------------------------------------------------------------------- */

static int make_builder(struct clp_target *t)
{
    const struct clp_dotnet *process = clp_target_process(t);
    char link[64], exe[4096];
    snprintf(link, sizeof(link), "/proc/%d/exe", process->pid);
    ssize_t n = readlink(link, exe, sizeof(exe) - 1);
    exe[n > 0 ? n : 0] = '\0';
    struct clp_build_config c = {
        .symbols = t->config.symbols,
        .root_fd = clp_session_root_fd(t->session),
        .pid = process->pid,
        .ns_pid = process->ns_pid,
        .main_binary = n > 0 ? exe : NULL,
        .ticks = process->info.major < 10,
        .cpu_interval_ns = t->config.settings.cpu_interval_ns,
        .spans = t->config.spans,
        .types = t->config.types,
        .leave_out_idle = t->config.leave_out_idle,
        .names_later = true, /* see give_window */
    };
    t->types = t->config.types;
    return clp_build_new(&c, &t->build);
}

/* ---- the engine eventpipe ------------------------------------------------------------------ */

static int keep_process(struct clp_target *t, const struct clp_dotnet *found)
{
    t->process = *found;
    t->process.root_fd = fcntl(found->root_fd, F_DUPFD_CLOEXEC, 3);
    t->process.temp_fd = fcntl(found->temp_fd, F_DUPFD_CLOEXEC, 3);
    return t->process.temp_fd < 0 ? -errno : 0;
}

static int start_events(struct clp_target *t, const struct clp_dotnet *found,
                        struct clp_fault *fault)
{
    struct clp_epe_config c = {
        .burst_ns = CLP_EPE_BURST_NS,
        .period_ns = CLP_EPE_PERIOD_NS,
        .spans = t->config.no_hook ? CLP_SPANS_OFF : t->config.spans,
        .types = t->config.types,
        .journal = t->config.journal,
        .symbols = t->config.symbols,
    };
    int r = keep_process(t, found);
    if (r < 0)
        return clp_fault_set(fault, r, "cannot keep process %d open: %s", found->pid, strerror(-r));
    t->types = t->config.types;
    return clp_epe_new(&t->process, &c, &t->events, fault);
}

static void give_events(struct clp_target *t, bool last)
{
    struct clp_epe_window e;
    if (clp_epe_window(t->events, &e) < 0) {
        clp_log_error("process %d: a window was lost: out of memory", t->process.pid);
        return;
    }
    struct clp_window w = {.profile = e.profile,
                           .start_unix_ns = t->start_unix_ns,
                           .duration_ns = e.duration_ns,
                           .start_ns = e.start_ns,
                           .samples = e.samples,
                           .types = t->types,
                           .last = last};
    clp_profile_set_window(w.profile, w.start_unix_ns, w.duration_ns);
    begin_next(t, e.start_ns + e.duration_ns, e.duration_ns);
    t->config.window(t->config.context, t, &w);
    clp_profile_free(w.profile);
}

static enum clp_session_state step_events(struct clp_target *t, uint64_t now_ns)
{
    enum clp_epe_state s = clp_epe_step(t->events);
    t->due_ns = now_ns + clp_epe_patience_ns(t->events);
    if (s == CLP_EPE_STARTING)
        return CLP_SESSION_ATTACHING;
    if (s == CLP_EPE_FAILED)
        return CLP_SESSION_FAILED;
    if (t->start_ns == 0)
        begin_first(t, clp_epe_start_ns(t->events));
    if (s == CLP_EPE_CUT)
        give_events(t, false);
    if (s != CLP_EPE_DONE)
        return CLP_SESSION_LIVE;
    if (!t->ended) {
        t->ended = true;
        (void)clp_fault_set(&t->ended_how, -ESRCH, "it has ended");
        give_events(t, true);
    }
    return CLP_SESSION_ENDED;
}

static struct clp_target *new_target(const struct clp_target_config *config,
                                     struct clp_session_config *ret)
{
    struct clp_target *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->config = *config;
    t->process.root_fd = t->process.temp_fd = -1;
    t->drain_ns = CLP_SESSION_DRAIN_NS;
    *ret = (struct clp_session_config){.library = config->library,
                                       .settings = config->settings,
                                       .no_hook = config->no_hook,
                                       .one_of_many = config->one_of_many,
                                       .record = take_record,
                                       .context = t};
    return t;
}

int clp_target_start(const struct clp_dotnet *found, const struct clp_target_config *config,
                     struct clp_target **ret, struct clp_fault *fault)
{
    struct clp_session_config c;
    struct clp_target *t = new_target(config, &c);
    if (!t)
        return clp_fault_set(fault, -ENOMEM, "out of memory");
    int r = config->events ? start_events(t, found, fault)
                           : clp_session_start(found, &c, &t->session, fault);
    if (r == 0 && !config->events) {
        r = make_builder(t);
        if (r < 0)
            clp_fault_set(fault, r, "out of memory");
    }
    if (r < 0) {
        clp_target_free(t);
        return r;
    }
    *ret = t;
    return 0;
}

int clp_target_announce(const struct clp_target_config *config, struct clp_target **ret,
                        char ret_announcement[CLP_ANNOUNCEMENT_BYTES], struct clp_fault *fault)
{
    struct clp_session_config c;
    struct clp_target *t = new_target(config, &c);
    if (!t)
        return clp_fault_set(fault, -ENOMEM, "out of memory");
    int r = clp_session_announce(&c, &t->session, ret_announcement, fault);
    if (r < 0) {
        clp_target_free(t);
        return r;
    }
    *ret = t;
    return 0;
}

struct clp_target *clp_target_free(struct clp_target *t)
{
    if (!t)
        return NULL;
    clp_profile_free(t->held.profile);
    clp_build_free(t->build); /* uses the session's root */
    clp_session_free(t->session);
    clp_epe_free(t->events); /* uses the process's directory */
    clp_cleanup_fd(&t->process.root_fd);
    clp_cleanup_fd(&t->process.temp_fd);
    free(t);
    return NULL;
}

const struct clp_dotnet *clp_target_process(const struct clp_target *t)
{
    return t->session ? clp_session_process(t->session) : &t->process;
}

struct clp_session *clp_target_session(struct clp_target *t)
{
    return t->session;
}

const struct clp_fault *clp_target_fault(const struct clp_target *t)
{
    if (t->session)
        return clp_session_fault(t->session);
    return t->ended ? &t->ended_how : clp_epe_fault(t->events);
}

nfds_t clp_target_fds(const struct clp_target *t, struct pollfd *fds)
{
    return t->session ? clp_session_fds(t->session, fds) : clp_epe_fds(t->events, fds);
}

void clp_target_bye(struct clp_target *t, bool detach)
{
    if (t->session)
        clp_session_bye(t->session, detach);
}

/* ---- windows ------------------------------------------------------------------------------- */

static void give_last_window(struct clp_target *t, uint64_t now_ns)
{
    if (t->ended || t->start_ns == 0 || !t->build)
        return;
    give_held(t);
    t->ended = true;
    uint64_t end_ns = t->last_words_ns ? t->last_words_ns : now_ns;
    give_window(t, CLP_MAX(end_ns, t->start_ns), t->last_words_ns != 0, true);
}

/* Aligned, so that the rings of many targets are emptied at one waking. */
static uint64_t next_drain_ns(const struct clp_target *t, uint64_t now_ns)
{
    return (now_ns / t->drain_ns + 1) * t->drain_ns;
}

/* Events may come all at once after a time without any. */
static uint64_t longest_drain_ns(const struct clp_target *t)
{
    uint64_t ns = LONGEST_DRAIN_SAMPLES * t->config.settings.cpu_interval_ns;
    if (t->config.settings.sample_kinds & CLP_SAMPLE_KINDS_EVENT)
        return CLP_SESSION_DRAIN_NS;
    return CLP_MIN(CLP_MAX(ns, CLP_SESSION_DRAIN_NS), LONGEST_DRAIN_NS);
}

static enum clp_session_state drain(struct clp_target *t)
{
    enum clp_session_state state = clp_session_drain(t->session);
    uint64_t bytes = clp_session_drained_bytes(t->session);
    uint64_t ring = clp_session_ring_bytes(t->session);
    uint64_t longest_ns = longest_drain_ns(t);
    if (bytes >= ring / BUSY_SHARE)
        t->drain_ns = CLP_SESSION_DRAIN_NS;
    else if (bytes <= ring / QUIET_SHARE)
        t->drain_ns *= 2;
    t->drain_ns = CLP_MIN(t->drain_ns, longest_ns);
    return state;
}

static void plan_next_step(struct clp_target *t, uint64_t now_ns)
{
    t->due_ns = next_drain_ns(t, now_ns);
    if (!t->mark_until_ns)
        return;
    t->due_ns = CLP_MIN(t->due_ns, now_ns + t->mark_poll_ns);
    t->mark_poll_ns = CLP_MIN(2 * t->mark_poll_ns, LAST_MARK_POLL_NS);
}

enum clp_session_state clp_target_step(struct clp_target *t, uint64_t now_ns)
{
    if (t->events)
        return step_events(t, now_ns);
    enum clp_session_state before = clp_session_state(t->session);
    if (before == CLP_SESSION_LIVE && t->start_ns == 0)
        begin_first(t, now_ns);
    enum clp_session_state state = clp_session_step(t->session, now_ns);
    if (state == CLP_SESSION_LIVE && t->start_ns == 0)
        begin_first(t, now_ns);
    if (state == CLP_SESSION_LIVE)
        heed_opening(t, clp_clock_monotonic_ns());
    plan_next_step(t, now_ns);
    if (state == CLP_SESSION_LIVE && !t->build && make_builder(t) < 0)
        return state; /* tried again with the next step; the ring waits */
    if (state == CLP_SESSION_LIVE)
        state = drain(t);
    if (state == CLP_SESSION_LIVE && t->mark_until_ns && now_ns >= t->mark_until_ns)
        give_window(t, now_ns, false, false);
    if (t->held.profile && clp_build_open_roots(t->build) == 0)
        give_held(t);
    if (state == CLP_SESSION_ENDED || state == CLP_SESSION_FAILED)
        give_last_window(t, now_ns);
    return state;
}

/* What the last second of events would tell is not worth waiting for their end. */
void clp_target_end(struct clp_target *t, uint64_t now_ns, bool detach)
{
    if (t->events)
        return;
    bool live = clp_session_state(t->session) == CLP_SESSION_LIVE;
    clp_session_bye(t->session, detach);
    if (live && clp_target_samples(t) > 0)
        give_last_window(t, now_ns);
    give_held(t);
}

void clp_target_cut(struct clp_target *t, uint64_t now_ns)
{
    if (t->start_ns == 0 || t->mark_until_ns || t->ended)
        return;
    if (t->events) {
        clp_epe_cut(t->events);
        return;
    }
    t->flush_id++;
    t->mark_until_ns = now_ns + CLP_TARGET_MARK_NS;
    t->mark_poll_ns = FIRST_MARK_POLL_NS;
    plan_next_step(t, now_ns);
    int r = clp_session_flush(t->session, t->flush_id);
    if (r < 0)
        clp_log_debug("process %d: cannot ask for a mark: %s", pid_of(t), strerror(-r));
}

bool clp_target_is_cutting(const struct clp_target *t)
{
    return t->events ? clp_epe_is_cutting(t->events) : t->mark_until_ns != 0;
}

uint64_t clp_target_due_ns(const struct clp_target *t)
{
    return t->due_ns;
}

uint64_t clp_target_window_start_ns(const struct clp_target *t)
{
    return t->start_ns;
}

void clp_target_set(struct clp_target *t, const struct clp_settings *settings, uint32_t types)
{
    if (t->events)
        return; /* its sessions are open for what was wanted at its start */
    int r = clp_session_set(t->session, settings);
    if (r < 0)
        clp_log_debug("process %d: cannot be told its settings: %s", pid_of(t), strerror(-r));
    t->config.settings = *settings;
    t->config.types = types;
    if (t->build)
        clp_build_set_types(t->build, types, settings->cpu_interval_ns);
}

void clp_target_set_share(struct clp_target *t, unsigned share)
{
    if (t->build)
        clp_build_set_share(t->build, share);
}

uint64_t clp_target_samples(const struct clp_target *t)
{
    if (t->events)
        return clp_epe_samples(t->events);
    return t->build ? clp_build_samples(t->build) : 0;
}
