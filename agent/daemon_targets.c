#include "agent/daemon_parts.h"

#include "agent/engine.h"
#include "agent/kinds.h"
#include "agent/match.h"
#include "agent/status.h"
#include "agent/types.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A runtime answers before it knows its own command line and entry assembly. */
#define YOUNG_NS (5 * CLP_NSEC_PER_SEC)
#define YOUNG_PAUSE_NS (200 * CLP_NSEC_PER_MSEC)

#define UNWANTED_NS (600 * CLP_NSEC_PER_SEC) /* its name may change, seldom */
#define TIDY_EVERY_NS CLP_NSEC_PER_SEC
#define RESUME_NS (100 * CLP_NSEC_PER_MSEC)

/* ---- which --------------------------------------------------------------------------------- */

/* Whether the settings want it; if not, why in `why`. */
static bool is_wanted(const struct clp_daemon *d, const struct clp_dotnet *p, const char *service,
                      char *why, size_t cap)
{
    const struct clp_config *c = d->options.config;
    const char *pattern = clp_match_any(&c->targets_exclude, p, service);
    if (pattern) {
        snprintf(why, cap, "left alone: targets.exclude has '%.100s'", pattern);
        return false;
    }
    if (!clp_match_any(&c->targets_include, p, service)) {
        snprintf(why, cap, "left alone: nothing in targets.include matches");
        return false;
    }
    return true;
}

static uint32_t types_of(const struct clp_daemon *d, const struct clp_dotnet *p)
{
    return clp_types_told(d->options.config->profile_types, p->info.major);
}

static struct clp_settings settings_of(const struct clp_daemon *d, const struct clp_member *m,
                                       uint32_t types)
{
    return (struct clp_settings){
        .sample_kinds = clp_kinds_wire(types),
        .cpu_interval_ns = d->options.config->profile_cpu_interval,
        .wall_budget_ppm =
            clp_limits_budget_ppm(&m->limits, d->options.config->profile_wall_budget),
    };
}

static_assert((int)CLP_CONFIG_SPANS_OFF == (int)CLP_SPANS_OFF, "one order");

static const char *no_hook(const struct clp_config *c)
{
    if (!c->targets_startup_hook)
        return "targets.startup_hook is false";
    return c->profile_span_labels == CLP_CONFIG_SPANS_OFF ? "profile.span_labels is off" : NULL;
}

/* ---- new ones ------------------------------------------------------------------------------ */

static void fail_member(struct clp_daemon *d, struct clp_member *m, const struct clp_fault *f,
                        uint64_t now_ns)
{
    clp_member_fail(m, f, now_ns);
    clp_scan_hold(d->scan, m->pid, m->retry_at_ns);
    clp_log_warning("%s", f->text);
}

/* An application that waits for its tool is let go before anything else: it waits for nobody but
 * us. */
static void let_go(const struct clp_dotnet *p)
{
    if (!p->suspended)
        return;
    int r = clp_dotnet_resume(p, RESUME_NS);
    if (r < 0)
        clp_log_warning("process %d waits at its start and cannot be let go: %s", p->pid,
                        strerror(-r));
}

/* Once the library has been refused it is not tried again. */
static void choose_engine(const struct clp_daemon *d, struct clp_member *m,
                          const struct clp_dotnet *p)
{
    enum clp_config_engine engine = d->options.config->targets_engine;
    if (engine == CLP_CONFIG_ENGINE_AUTO && !m->events)
        m->events = clp_engine_needs_events(p, m->why_events, sizeof(m->why_events));
    else if (engine == CLP_CONFIG_ENGINE_LIBRARY)
        m->events = false;
    else if (engine == CLP_CONFIG_ENGINE_EVENTPIPE && !m->events) {
        m->events = true;
        snprintf(m->why_events, sizeof(m->why_events), "targets.engine is eventpipe");
    }
}

static int start_target(struct clp_daemon *d, struct clp_member *m, const struct clp_dotnet *p,
                        struct clp_fault *fault)
{
    clp_limits_read("/proc", "/sys/fs/cgroup", p->pid, &m->limits);
    uint32_t types = types_of(d, p);
    if (types != d->options.config->profile_types)
        clp_log_info("process %d runs .NET %s, which does not tell of waits for handles: they are "
                     "left out",
                     p->pid, p->info.runtime_version);
    struct clp_target_config c = {
        .library = d->library,
        .symbols = d->symbols,
        .settings = settings_of(d, m, types),
        .no_hook = no_hook(d->options.config),
        .spans = (enum clp_span_mode)d->options.config->profile_span_labels,
        .names_later = true,
        .one_of_many = true,
        .types = types,
        .events = m->events,
        .journal = d->journal,
        .walltime = &d->walltime,
        .window = clp_daemon_take_window,
        .context = d,
    };
    m->identity = calloc(1, sizeof(*m->identity));
    if (!m->identity)
        return clp_fault_set(fault, -ENOMEM, "out of memory");
    clp_identity_read(p, d->options.config, m->identity);
    return clp_target_start(p, &c, &m->target, fault);
}

static void share_memory(struct clp_daemon *d)
{
    unsigned share = clp_limits_share(&d->limits, d->targets);
    for (size_t i = 0; i < d->roster.count; i++) {
        struct clp_member *m = d->roster.members[i];
        clp_type_counts_set_share(&m->totals.exceptions, share);
        if (m->target)
            clp_target_set_share(m->target, share);
    }
}

/* The library cannot go in, or is refused: the next scan begins anew, with the other engine, if the
 * settings leave the choice to us. */
static bool take_events_instead(struct clp_daemon *d, struct clp_member *m,
                                const struct clp_fault *f, uint64_t now_ns)
{
    if (f->error != CLP_FAULT_REFUSED || m->events ||
        d->options.config->targets_engine != CLP_CONFIG_ENGINE_AUTO)
        return false;
    m->events = m->library_refused = true;
    snprintf(m->why_events, sizeof(m->why_events), "%s", f->text);
    clp_member_set(m, CLP_MEMBER_SEEN, now_ns,
                   "the library is refused: the engine eventpipe is next");
    clp_scan_hold(d->scan, m->pid, now_ns);
    clp_scan_hurry(d->scan);
    return true;
}

static void begin(struct clp_daemon *d, struct clp_member *m, const struct clp_dotnet *p,
                  uint64_t now_ns)
{
    struct clp_fault fault = {.error = CLP_FAULT_REFUSED};
    if (clp_dotnet_unsupported(p, fault.text, sizeof(fault.text))) { /* by either engine */
        fail_member(d, m, &fault, now_ns);
        return;
    }
    choose_engine(d, m, p);
    if (start_target(d, m, p, &fault) < 0) {
        clp_member_leave(m);
        if (!take_events_instead(d, m, &fault, now_ns))
            fail_member(d, m, &fault, now_ns);
        return;
    }
    d->targets++;
    share_memory(d);
    clp_member_set(m, CLP_MEMBER_ATTACHING, now_ns, "");
    clp_scan_hold(d->scan, m->pid, UINT64_MAX);
}

/* It is .NET and cannot be talked to. The scan comes back to it by itself. */
static void note_closed(struct clp_member *m, const struct clp_dotnet *p, uint64_t now_ns)
{
    char why[CLP_FAULT_BYTES];
    struct clp_dotnet stopped = *p;
    if (p->state == CLP_DOTNET_PORT) /* was not asked, because it is stopped */
        stopped.state = CLP_DOTNET_SILENT;
    clp_dotnet_explain(&stopped, why, sizeof(why));
    if (strcmp(why, m->reason) != 0)
        clp_log_info("not profiled: %s", why);
    m->retry_at_ns = now_ns;
    clp_member_set(m, CLP_MEMBER_REFUSED, now_ns, why);
}

/* What it says of itself in its first moments may not be its last word. When to ask again: at twice
 * its age; 0: it is old enough. */
static uint64_t young_pause_ns(const struct clp_dotnet *p)
{
    uint64_t age_ns = clp_dotnet_age_ns(p->start_ticks);
    return age_ns >= YOUNG_NS ? 0 : CLP_MAX(age_ns, YOUNG_PAUSE_NS);
}

static void take_process(void *context, struct clp_dotnet *p)
{
    struct clp_daemon *d = context;
    char why[256];
    uint64_t now_ns = clp_clock_monotonic_ns();
    struct clp_member *m = clp_roster_meet(&d->roster, p, now_ns);
    if (!m || m->target)
        return;
    if (p->state != CLP_DOTNET_READY) {
        note_closed(m, p, now_ns);
        return;
    }
    let_go(p);
    uint64_t young_ns = young_pause_ns(p);
    if (young_ns && !*p->info.entry_assembly) {
        clp_scan_hold(d->scan, p->pid, now_ns + YOUNG_PAUSE_NS);
        return;
    }
    clp_identity_service(p, d->options.config->service_name, m->service);
    if (!is_wanted(d, p, m->service, why, sizeof(why))) {
        clp_member_set(m, CLP_MEMBER_SEEN, now_ns, why);
        clp_scan_hold(d->scan, p->pid, now_ns + (young_ns ? young_ns : UNWANTED_NS));
        return;
    }
    if (d->targets < CLP_DAEMON_TARGETS_MAX) {
        begin(d, m, p, now_ns);
        return;
    }
    struct clp_fault full;
    (void)clp_fault_set(&full, -EMFILE, "process %d is not profiled: %u targets are the most",
                        p->pid, CLP_DAEMON_TARGETS_MAX);
    fail_member(d, m, &full, now_ns);
}

void clp_daemon_scan(struct clp_daemon *d)
{
    uint64_t now_ns = clp_clock_monotonic_ns();
    int r = clp_scan_round(d->scan, now_ns, take_process, d);
    d->scan_error = r;
    if (r < 0)
        clp_log_error("cannot read /proc: %s", strerror(-r));
    if (now_ns - d->tidied_ns < TIDY_EVERY_NS)
        return;
    d->tidied_ns = now_ns;
    clp_roster_tidy(&d->roster, &clp_discover_system, now_ns);
}

/* ---- their sessions ------------------------------------------------------------------------ */

static void greet(struct clp_member *m, uint64_t now_ns)
{
    char limits[CLP_FAULT_BYTES];
    m->failures = 0;
    m->kernel_at_window_ns = clp_kernel_cpu_ns(m->pid);
    m->threads_at_window = clp_kernel_threads(m->pid);
    snprintf(m->service, sizeof(m->service), "%s", m->identity->service);
    if (m->events) {
        snprintf(limits, sizeof(limits), "engine eventpipe: %.200s", m->why_events);
    } else {
        clp_session_limits(clp_target_session(m->target), limits, sizeof(limits));
        if (m->limits.millicores < 1000 && !*limits)
            snprintf(limits, sizeof(limits),
                     "its control group allows %.2f cores: waiting threads are looked at in "
                     "proportion",
                     m->limits.millicores / 1000.0);
    }
    clp_member_set(m, CLP_MEMBER_PROFILING, now_ns, limits);
    if (*limits)
        clp_log_info("process %d (%s): %s", m->pid, m->comm, limits);
    clp_log_info("profiling process %d (%s), .NET %s, service %s", m->pid, m->comm, m->runtime,
                 m->service);
}

static void leave(struct clp_daemon *d, struct clp_member *m)
{
    clp_daemon_count(m);
    clp_member_leave(m);
    d->targets--;
    share_memory(d);
}

static void end_session(struct clp_daemon *d, struct clp_member *m, uint64_t now_ns)
{
    struct clp_fault f = *clp_target_fault(m->target);
    bool lives = clp_dotnet_alive(&clp_discover_system, clp_target_process(m->target));
    bool began = clp_target_window_start_ns(m->target) != 0;
    leave(d, m);
    if (m->library_refused && !began) { /* neither engine: the first reason is the one to act on */
        struct clp_fault both;
        (void)clp_fault_set(&both, CLP_FAULT_REFUSED, "%.200s; and not by its events: %.200s",
                            m->why_events, f.text);
        f = both;
    }
    if (lives && !began && take_events_instead(d, m, &f, now_ns))
        return;
    if (lives) {
        fail_member(d, m, &f, now_ns); /* also the library that left: something made it */
        return;
    }
    clp_log_info("process %d (%s): %s", m->pid, m->comm, f.text);
    clp_seq_forget(d->seq, m->cookie);
    clp_member_set(m, CLP_MEMBER_GONE, now_ns, f.text);
    clp_scan_hold(d->scan, m->pid, now_ns);
}

static void step_member(struct clp_daemon *d, struct clp_member *m, uint64_t now_ns)
{
    uint64_t before_ns = clp_target_window_start_ns(m->target);
    m->woken = false;
    enum clp_session_state state = clp_target_step(m->target, now_ns);
    uint64_t start_ns = clp_target_window_start_ns(m->target);
    if (before_ns == 0 && start_ns != 0)
        greet(m, now_ns);
    if (start_ns != 0 && now_ns >= start_ns + d->options.config->profile_period)
        clp_target_cut(m->target, now_ns);
    if (state == CLP_SESSION_ENDED || state == CLP_SESSION_FAILED)
        end_session(d, m, now_ns);
}

uint64_t clp_daemon_due_ns(const struct clp_daemon *d, const struct clp_member *m)
{
    uint64_t start_ns = clp_target_window_start_ns(m->target);
    uint64_t due_ns = clp_target_due_ns(m->target);
    if (start_ns == 0 || d->stopping || clp_target_is_cutting(m->target))
        return due_ns;
    return CLP_MIN(due_ns, start_ns + d->options.config->profile_period);
}

/* The others sleep: a round costs them nothing. */
void clp_daemon_step(struct clp_daemon *d)
{
    for (size_t i = d->roster.count; i > 0; i--) {
        struct clp_member *m = d->roster.members[i - 1];
        uint64_t now_ns = m->target ? clp_clock_monotonic_ns() : 0;
        if (m->target && (m->woken || now_ns >= clp_daemon_due_ns(d, m)))
            step_member(d, m, now_ns);
    }
}

/* ---- changes ------------------------------------------------------------------------------- */

static void resettle(struct clp_daemon *d, struct clp_member *m, uint64_t now_ns)
{
    const struct clp_dotnet *p = clp_target_process(m->target);
    uint32_t types = types_of(d, p);
    struct clp_settings settings = settings_of(d, m, types);
    char why[256];
    clp_identity_read(p, d->options.config, m->identity);
    if (is_wanted(d, p, m->identity->service, why, sizeof(why))) {
        clp_target_set(m->target, &settings, types);
        return;
    }
    clp_target_end(m->target, now_ns, true);
    leave(d, m);
    clp_member_set(m, CLP_MEMBER_SEEN, now_ns, why);
    clp_scan_hold(d->scan, m->pid, now_ns + UNWANTED_NS);
    clp_log_info("process %d (%s) is %s", m->pid, m->comm, why);
}

void clp_daemon_resettle(struct clp_daemon *d)
{
    uint64_t now_ns = clp_clock_monotonic_ns();
    for (size_t i = d->roster.count; i > 0; i--)
        if (d->roster.members[i - 1]->target)
            resettle(d, d->roster.members[i - 1], now_ns);
    clp_scan_release(d->scan);
}

void clp_daemon_leave_all(struct clp_daemon *d, bool detach)
{
    for (size_t i = 0; i < d->roster.count; i++) {
        struct clp_member *m = d->roster.members[i];
        if (!m->target)
            continue;
        clp_target_bye(m->target, detach); /* its window has been cut */
        leave(d, m);
    }
}
