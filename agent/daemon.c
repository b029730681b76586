#include "agent/daemon.h"

#include "agent/kinds.h"
#include "agent/library.h"
#include "agent/outbox.h"
#include "agent/scan.h"
#include "agent/target.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fnmatch.h>
#include <poll.h>
#include <string.h>

#define RETRY_NS (60 * CLP_NSEC_PER_SEC)       /* after a target failed */
#define REFUSED_NS (600 * CLP_NSEC_PER_SEC)    /* after it, or our settings, said no */
#define LAST_WINDOWS_NS (3 * CLP_NSEC_PER_SEC) /* the targets' time to answer at the end */
#define LAST_UPLOADS_NS (10 * CLP_NSEC_PER_SEC)

struct daemon {
    struct clp_daemon_options options;
    char *library;
    struct clp_symbols *symbols;
    struct clp_outbox *outbox;
    struct clp_scan *scan;
    struct clp_target *targets[CLP_DAEMON_TARGETS_MAX];
    size_t count;
    bool stopping;
};

/* ---- profiles ------------------------------------------------------------------------------ */

static void comment_service(const struct daemon *d, const struct clp_dotnet *p, const char *service,
                            struct clp_profile *profile)
{
    const struct clp_config *c = d->options.config;
    (void)!clp_profile_comment(profile, "service=%s", service);
    if (*c->service_env)
        (void)!clp_profile_comment(profile, "env=%s", c->service_env);
    if (*c->service_version)
        (void)!clp_profile_comment(profile, "version=%s", c->service_version);
    for (size_t i = 0; i < CLP_MIN(c->service_tags.count, 16u); i++)
        (void)!clp_profile_comment(profile, "tag=%s", c->service_tags.items[i]);
    (void)!clp_profile_comment(profile, "process=%d", p->pid);
    (void)!clp_profile_comment(profile, "runtime=.NET %s", p->info.runtime_version);
}

static void put_kind(struct daemon *d, const struct clp_window *w, struct clp_upload_item *item,
                     enum clp_profile_type kind)
{
    struct clp_encoded encoded;
    int r = clp_kind_encode(w->profile, kind, &encoded);
    if (r < 0) {
        clp_log_error("a profile of process %d is lost: %s", item->pid, strerror(-r));
        return;
    }
    item->kind = clp_profile_type_name(kind);
    item->data = encoded.data;
    item->len = encoded.len;
    clp_outbox_put(d->outbox, item);
    clp_encoded_done(&encoded);
}

static void take_window(void *context, struct clp_target *t, const struct clp_window *w)
{
    struct daemon *d = context;
    const struct clp_dotnet *p = clp_target_process(t);
    char service[CLP_SERVICE_BYTES];
    clp_target_service(p, d->options.config->service_name, service);
    comment_service(d, p, service, w->profile);
    struct clp_upload_item item = {
        .service = service,
        .pid = p->pid,
        .start_unix_ns = w->start_unix_ns,
        .duration_ns = w->duration_ns,
        .seq = w->seq,
    };
    for (int kind = 0; kind < CLP_TYPE_COUNT; kind++)
        if (d->options.config->profile_types & (1u << kind))
            put_kind(d, w, &item, (enum clp_profile_type)kind);
}

/* ---- targets ------------------------------------------------------------------------------- */

/* Each attempt costs the target something, so the wait depends on what went wrong. */
static uint64_t retry_at(uint64_t now_ns, int error)
{
    if (error == -EBADMSG) /* who writes nonsense is not asked again */
        return UINT64_MAX;
    return now_ns + (error == CLP_FAULT_REFUSED ? REFUSED_NS : RETRY_NS);
}

static bool matches(const struct clp_list *patterns, const struct clp_dotnet *p,
                    const char *service)
{
    const char *names[] = {service, p->info.entry_assembly, p->comm, p->info.command_line};
    for (size_t i = 0; i < patterns->count; i++)
        for (size_t n = 0; n < CLP_ARRAY_LEN(names); n++)
            if (fnmatch(patterns->items[i], names[n], 0) == 0)
                return true;
    return false;
}

static bool is_wanted(const struct daemon *d, const struct clp_dotnet *p)
{
    const struct clp_config *c = d->options.config;
    char service[CLP_SERVICE_BYTES];
    clp_target_service(p, c->service_name, service);
    return matches(&c->targets_include, p, service) && !matches(&c->targets_exclude, p, service);
}

static_assert((int)CLP_CONFIG_SPANS_OFF == (int)CLP_SPANS_OFF, "one order");

static const char *no_hook(const struct clp_config *c)
{
    if (!c->targets_startup_hook)
        return "targets.startup_hook is false";
    return c->profile_span_labels == CLP_CONFIG_SPANS_OFF ? "profile.span_labels is off" : NULL;
}

static void take_target(void *context, struct clp_dotnet *p)
{
    struct daemon *d = context;
    struct clp_fault fault = {.error = CLP_FAULT_REFUSED};
    struct clp_target *t;
    struct clp_target_config c = {
        .library = d->library,
        .symbols = d->symbols,
        .settings = {.sample_kinds = clp_kinds_wire(d->options.config->profile_types),
                     .cpu_interval_ns = d->options.config->profile_cpu_interval,
                     .wall_budget_ppm = d->options.config->profile_wall_budget},
        .types = d->options.config->profile_types,
        .no_hook = no_hook(d->options.config),
        .spans = (enum clp_span_mode)d->options.config->profile_span_labels,
        .window = take_window,
        .context = d,
    };
    uint64_t now_ns = clp_clock_monotonic_ns();
    if (!is_wanted(d, p)) {
        clp_scan_hold(d->scan, p->pid, now_ns + REFUSED_NS);
        return;
    }
    if (d->count == CLP_DAEMON_TARGETS_MAX) {
        clp_log_warning("process %d is not profiled: %u targets are the most", p->pid,
                        CLP_DAEMON_TARGETS_MAX);
        return;
    }
    if (clp_dotnet_unsupported(p, fault.text, sizeof(fault.text)) ||
        clp_target_start(p, &c, &t, &fault) < 0) {
        clp_log_warning("%s", fault.text);
        clp_scan_hold(d->scan, p->pid, retry_at(now_ns, fault.error));
        return;
    }
    clp_scan_hold(d->scan, p->pid, UINT64_MAX);
    d->targets[d->count++] = t;
}

static void drop_target(struct daemon *d, size_t i, uint64_t now_ns)
{
    struct clp_target *t = d->targets[i];
    const struct clp_dotnet *p = clp_target_process(t);
    const struct clp_fault *f = clp_session_fault(clp_target_session(t));
    if (f->error)
        clp_log_warning("%s", f->text);
    else
        clp_log_info("process %d (%s): %s", p->pid, p->comm, f->text);
    clp_scan_hold(d->scan, p->pid, retry_at(now_ns, f->error));
    clp_target_free(t);
    d->targets[i] = d->targets[--d->count];
}

static void greet(const struct daemon *d, const struct clp_target *t)
{
    const struct clp_dotnet *p = clp_target_process(t);
    char service[CLP_SERVICE_BYTES];
    clp_target_service(p, d->options.config->service_name, service);
    clp_log_info("profiling process %d (%s), .NET %s, service %s", p->pid, p->comm,
                 p->info.runtime_version, service);
}

static void step_target(struct daemon *d, size_t i, uint64_t now_ns)
{
    struct clp_target *t = d->targets[i];
    uint64_t before_ns = clp_target_window_start_ns(t);
    enum clp_session_state state = clp_target_step(t, now_ns);
    uint64_t start_ns = clp_target_window_start_ns(t);
    if (before_ns == 0 && start_ns != 0)
        greet(d, t);
    if (start_ns != 0 && now_ns >= start_ns + d->options.config->profile_period)
        clp_target_cut(t, now_ns);
    if (state == CLP_SESSION_ENDED || state == CLP_SESSION_FAILED)
        drop_target(d, i, now_ns);
}

static void step_all(struct daemon *d)
{
    uint64_t now_ns = clp_clock_monotonic_ns();
    for (size_t i = d->count; i > 0; i--)
        step_target(d, i - 1, now_ns);
}

/* ---- the loop ------------------------------------------------------------------------------ */

/* Sleeps until a target has something to say, at most until `until_ns`. */
static void wait_for_events(struct daemon *d, uint64_t until_ns)
{
    static struct pollfd fds[1 + CLP_DAEMON_TARGETS_MAX * CLP_SESSION_FDS];
    nfds_t n = 0;
    uint64_t now_ns = clp_clock_monotonic_ns();
    fds[n++] = (struct pollfd){.fd = d->stopping ? -1 : d->options.stop_fd, .events = POLLIN};
    for (size_t i = 0; i < d->count; i++)
        n += clp_session_fds(clp_target_session(d->targets[i]), fds + n);
    int ms = now_ns < until_ns ? (int)((until_ns - now_ns) / CLP_NSEC_PER_MSEC) + 1 : 0;
    (void)poll(fds, n, ms);
    if (fds[0].revents)
        d->stopping = true;
}

static uint64_t patience_ns(const struct daemon *d)
{
    uint64_t ns = CLP_SCAN_EVERY_NS;
    for (size_t i = 0; i < d->count; i++)
        ns = CLP_MIN(ns, clp_target_patience_ns(d->targets[i]));
    return ns;
}

static void run(struct daemon *d)
{
    uint64_t scan_at_ns = 0;
    while (!d->stopping) {
        uint64_t now_ns = clp_clock_monotonic_ns();
        if (now_ns >= scan_at_ns) {
            int r = clp_scan_round(d->scan, now_ns, take_target, d);
            if (r < 0)
                clp_log_error("cannot read /proc: %s", strerror(-r));
            scan_at_ns = clp_clock_monotonic_ns() + CLP_SCAN_EVERY_NS;
        }
        wait_for_events(d, CLP_MIN(scan_at_ns, now_ns + patience_ns(d)));
        step_all(d);
    }
}

static bool any_cutting(const struct daemon *d)
{
    for (size_t i = 0; i < d->count; i++)
        if (clp_target_is_cutting(d->targets[i]))
            return true;
    return false;
}

static void finish(struct daemon *d)
{
    uint64_t now_ns = clp_clock_monotonic_ns();
    uint64_t until_ns = now_ns + LAST_WINDOWS_NS;
    clp_log_info("stopping: the last profiles are taken and delivered");
    for (size_t i = 0; i < d->count; i++)
        clp_target_cut(d->targets[i], now_ns);
    while (any_cutting(d) && clp_clock_monotonic_ns() < until_ns) {
        wait_for_events(d, clp_clock_monotonic_ns() + patience_ns(d));
        step_all(d);
    }
    for (size_t i = 0; i < d->count; i++) {
        clp_session_bye(clp_target_session(d->targets[i]), d->options.detach_on_exit);
        d->targets[i] = clp_target_free(d->targets[i]);
    }
    d->count = 0;
}

static int set_up(struct daemon *d, struct clp_fault *fault)
{
    int r = clp_library_find(&d->library, fault);
    if (r < 0)
        return r;
    if (clp_symbols_new(NULL, &d->symbols) < 0 || clp_scan_new(&clp_discover_system, &d->scan) < 0)
        return clp_fault_set(fault, -ENOMEM, "out of memory");
    return clp_outbox_new(d->options.config, &d->outbox, fault);
}

static void tear_down(struct daemon *d)
{
    clp_outbox_free(d->outbox, clp_clock_monotonic_ns() + LAST_UPLOADS_NS);
    clp_scan_free(d->scan);
    clp_symbols_free(d->symbols);
    free(d->library);
}

int clp_daemon_run(const struct clp_daemon_options *o, struct clp_fault *fault)
{
    static struct daemon d; /* too large for a stack */
    d = (struct daemon){.options = *o};
    int r = set_up(&d, fault);
    if (r == 0) {
        if (clp_discover_hides(&clp_discover_system))
            clp_log_warning("/proc shows this user only its own processes (hidepid); run the "
                            "agent as root to profile all");
        clp_log_info("the agent is up; it looks for .NET processes each second");
        run(&d);
        finish(&d);
    }
    tear_down(&d);
    return r;
}
