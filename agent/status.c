#include "agent/status.h"

#include "agent/numbers.h"
#include "base/cleanup.h"
#include "base/core/proctext.h"
#include "base/file.h"
#include "wire/tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- numbers ------------------------------------------------------------------------------- */

uint64_t clp_kernel_cpu_ns(int32_t pid)
{
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) < 0)
        return 0;
    return (uint64_t)t.tv_sec * CLP_NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

/* The number behind NAME in /proc/PID/status. */
static uint64_t status_number(int32_t pid, const char *name)
{
    CLP_CLEANUP(clp_cleanup_free) char *text = clp_file_read_proc(pid, "status", 65536, NULL);
    const char *at = text ? strstr(text, name) : NULL;
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

uint64_t clp_kernel_threads(int32_t pid)
{
    size_t len;
    struct clp_proc_stat stat;
    CLP_CLEANUP(clp_cleanup_free) char *text = clp_file_read_proc(pid, "stat", 65536, &len);
    if (!text || clp_proctext_stat(text, len, &stat) < 0)
        return 0;
    return stat.num_threads;
}

static unsigned count_descriptors(void)
{
    CLP_CLEANUP(clp_cleanup_dir) DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;
    if (!dir)
        return 0;
    while (readdir(dir))
        n++;
    return n > 3 ? n - 3 : 0; /* ".", ".." and the directory's own */
}

void clp_status_measure_self(struct clp_status *s)
{
    s->cpu_ns = clp_kernel_cpu_ns(getpid());
    s->resident_bytes = status_number(getpid(), "\nVmRSS:") * 1024;
    s->threads = (unsigned)status_number(getpid(), "\nThreads:");
    s->descriptors = count_descriptors();
}

void clp_status_duration(uint64_t s, char *buf, size_t cap)
{
    unsigned long long days = s / 86400, hours = s / 3600 % 24, minutes = s / 60 % 60;
    if (days)
        snprintf(buf, cap, "%llud%02lluh", days, hours);
    else if (hours)
        snprintf(buf, cap, "%lluh%02llum", hours, minutes);
    else
        snprintf(buf, cap, "%llum%02llus", minutes, (unsigned long long)s % 60);
}

uint64_t clp_status_seconds_since(const struct clp_status *s, uint64_t then_ns)
{
    return s->now_ns > then_ns ? (s->now_ns - then_ns) / CLP_NSEC_PER_SEC : 0;
}

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

/* Losses and limits: everything that is counted and is neither a control total nor a state. */
static bool is_loss(enum clp_counter c)
{
    return c == CLP_CTR_SAMPLES_INCOMPLETE || c == CLP_CTR_SAMPLES_TRUNCATED ||
           (c >= CLP_CTR_DROP_CAPTURE_FULL && c <= CLP_CTR_DROP_TABLE_FULL) ||
           c == CLP_CTR_SLOWDOWNS;
}

/* ---- text ---------------------------------------------------------------------------------- */

/* A target writes its own names: no terminal codes from there. */
static void add_clean(struct clp_strbuf *to, const char *s, int width)
{
    int n = 0;
    for (; *s; s++, n++)
        clp_strbuf_char(to, (unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s);
    for (; n < width; n++)
        clp_strbuf_char(to, ' ');
}

static void text_head(const struct clp_status *s, struct clp_strbuf *to)
{
    char up[32];
    uint64_t seconds = clp_status_seconds_since(s, s->started_ns);
    clp_status_duration(seconds, up, sizeof(up));
    clp_strbuf_printf(to, "clrpulse %s, process %d, up %s, %s%s\n", CLP_VERSION, getpid(), up,
                      *s->config_path ? "configuration " : "default configuration", s->config_path);
    clp_strbuf_printf(to, "agent: %.2f %% of a core, %.1f MB, %u threads, %u descriptors\n",
                      100 * ratio((double)s->cpu_ns / 1e9, (double)seconds),
                      (double)s->resident_bytes / 1048576, s->threads, s->descriptors);
    if (s->walltime->ahead_ns)
        clp_strbuf_printf(to,
                          "the wall clock was set back: profiles are stamped %.1f s ahead of it\n",
                          (double)s->walltime->ahead_ns / 1e9);
}

static void text_losses(const struct clp_member *m, struct clp_strbuf *to)
{
    const char *comma = "";
    for (unsigned c = 0; c < CLP_CTR_COUNT; c++) {
        uint64_t n = m->totals.counters[c];
        if (!is_loss((enum clp_counter)c) || n == 0)
            continue;
        clp_strbuf_printf(to, "%s%s %llu",
                          *comma ? comma : "         lost or limited: ", clp_counter_info(c)->name,
                          (unsigned long long)n);
        comma = ", ";
    }
    if (m->totals.lost) {
        clp_strbuf_printf(to, "%sprofiles %llu", *comma ? comma : "         lost or limited: ",
                          (unsigned long long)m->totals.lost);
        comma = ", ";
    }
    clp_strbuf_str(to, *comma ? "\n" : "");
}

static void text_retry(const struct clp_status *s, const struct clp_member *m,
                       struct clp_strbuf *to)
{
    if (m->state != CLP_MEMBER_REFUSED)
        return;
    if (m->retry_at_ns == UINT64_MAX)
        clp_strbuf_str(to, "; it is not tried again");
    else if (m->retry_at_ns > s->now_ns)
        clp_strbuf_printf(to, "; next attempt in %llu s",
                          (unsigned long long)((m->retry_at_ns - s->now_ns) / CLP_NSEC_PER_SEC));
}

static void text_member(const struct clp_status *s, const struct clp_member *m,
                        struct clp_strbuf *to)
{
    char since[32];
    clp_status_duration(clp_status_seconds_since(s, m->since_ns), since, sizeof(since));
    clp_strbuf_printf(to, "%8d %-10s %8s ", m->pid, clp_member_state_name(m->state), since);
    add_clean(to, *m->runtime ? m->runtime : "?", 10);
    clp_strbuf_printf(to, " %8llu %10llu %10.1f  ", (unsigned long long)m->totals.windows,
                      (unsigned long long)m->totals.samples,
                      m->totals.counters[CLP_CTR_PROCESS_CPU_NS] / 1e9);
    add_clean(to, *m->service ? m->service : m->comm, 0);
    clp_strbuf_char(to, '\n');
    if (*m->reason) {
        clp_strbuf_str(to, "         ");
        add_clean(to, m->reason, 0);
        text_retry(s, m, to);
        clp_strbuf_char(to, '\n');
    }
    text_losses(m, to);
}

/* Why it refused, and what it cost to stay within its limits. */
static void text_drops(const struct clp_outbox_lane *l, struct clp_strbuf *to)
{
    const char *before = "         refused: ";
    for (unsigned i = 0; i < CLP_DROPS; i++) {
        if (l->dropped[i] == 0)
            continue;
        clp_strbuf_printf(to, "%s%llu %s", before, (unsigned long long)l->dropped[i],
                          clp_delivery_drop_name((enum clp_delivery_drop)i));
        before = ", ";
    }
    if (l->refused)
        clp_strbuf_char(to, '\n');
    if (l->folded)
        clp_strbuf_printf(to, "         %llu samples folded into [other] to meet its limits\n",
                          (unsigned long long)l->folded);
}

static void text_lane(const struct clp_outbox_lane *l, struct clp_strbuf *to)
{
    clp_strbuf_str(to, l->name);
    if (*l->where) {
        clp_strbuf_str(to, " to ");
        add_clean(to, l->where, 0);
    }
    clp_strbuf_printf(to,
                      ": %llu delivered, %zu waiting (%.1f MB), %llu retries, %llu refused, "
                      "%llu crowded out, %llu lost\n",
                      (unsigned long long)l->delivered, l->waiting,
                      (double)l->waiting_bytes / 1048576, (unsigned long long)l->retried,
                      (unsigned long long)l->refused, (unsigned long long)l->crowded_out,
                      (unsigned long long)l->lost);
    text_drops(l, to);
    if (*l->last_error) {
        clp_strbuf_str(to, "         ");
        add_clean(to, l->last_error, 0);
        clp_strbuf_char(to, '\n');
    }
}

void clp_status_text(const struct clp_status *s, struct clp_strbuf *to)
{
    text_head(s, to);
    clp_strbuf_printf(to, "\n%8s %-10s %8s %-10s %8s %10s %10s  %s\n", "PID", "STATE", "SINCE",
                      "RUNTIME", "WINDOWS", "SAMPLES", "CPU S", "SERVICE");
    for (size_t i = 0; i < s->roster->count; i++)
        text_member(s, s->roster->members[i], to);
    if (s->roster->count == 0)
        clp_strbuf_str(to, "no .NET process was found\n");
    clp_strbuf_char(to, '\n');
    for (size_t i = 0; i < s->lane_count; i++)
        text_lane(&s->lanes[i], to);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void json_text(struct clp_strbuf *to, const char *key, const char *value)
{
    clp_strbuf_printf(to, ",\"%s\":", key);
    clp_strbuf_json(to, value, strlen(value));
}

static void json_number(struct clp_strbuf *to, const char *key, uint64_t value)
{
    clp_strbuf_printf(to, ",\"%s\":%llu", key, (unsigned long long)value);
}

static void json_identity(const struct clp_member *m, struct clp_strbuf *to)
{
    const struct clp_identity *id = m->identity;
    if (!id)
        return;
    json_text(to, "env", id->env);
    json_text(to, "version", id->version);
    json_text(to, "host", id->host);
    json_text(to, "runtime_id", id->runtime_id);
    json_text(to, "container_id", id->container_id);
    json_text(to, "git_repository", id->git_repository);
    json_text(to, "git_commit", id->git_commit);
    clp_strbuf_str(to, ",\"tags\":{");
    for (size_t i = 0; i < id->tag_count; i++) {
        clp_strbuf_str(to, i ? "," : "");
        clp_strbuf_json(to, id->tags[i].key, strlen(id->tags[i].key));
        clp_strbuf_char(to, ':');
        clp_strbuf_json(to, id->tags[i].value, strlen(id->tags[i].value));
    }
    clp_strbuf_char(to, '}');
}

static void json_counters(const struct clp_member *m, struct clp_strbuf *to)
{
    clp_strbuf_str(to, ",\"counters\":{");
    for (unsigned c = 0; c < CLP_CTR_COUNT; c++)
        clp_strbuf_printf(to, "%s\"%s\":%llu", c ? "," : "", clp_counter_info(c)->name,
                          (unsigned long long)m->totals.counters[c]);
    clp_strbuf_char(to, '}');
}

static void json_exceptions(const struct clp_type_counts *e, struct clp_strbuf *to)
{
    struct clp_type_counts_top top;
    clp_type_counts_top(e, &top);
    clp_strbuf_str(to, ",\"exceptions_by_type\":{");
    for (size_t i = 0; i < top.count; i++) {
        clp_strbuf_str(to, i ? "," : "");
        clp_strbuf_json(to, top.of[i].name, strlen(top.of[i].name));
        clp_strbuf_printf(to, ":%.0f", top.of[i].n);
    }
    if (top.others > 0)
        clp_strbuf_printf(to, "%s\"others\":%.0f", top.count ? "," : "", top.others);
    clp_strbuf_char(to, '}');
}

static void json_retry(const struct clp_status *s, const struct clp_member *m,
                       struct clp_strbuf *to)
{
    if (m->state != CLP_MEMBER_REFUSED)
        return;
    if (m->retry_at_ns == UINT64_MAX)
        clp_strbuf_str(to, ",\"retry_in_seconds\":null");
    else
        json_number(to, "retry_in_seconds",
                    m->retry_at_ns > s->now_ns ? (m->retry_at_ns - s->now_ns) / CLP_NSEC_PER_SEC
                                               : 0);
}

static void json_member(const struct clp_status *s, const struct clp_member *m,
                        struct clp_strbuf *to)
{
    clp_strbuf_printf(to, "{\"pid\":%d,\"uid\":%u", m->pid, m->uid);
    json_text(to, "state", clp_member_state_name(m->state));
    json_text(to, "reason", m->reason);
    json_retry(s, m, to);
    json_text(to, "service", m->service);
    json_text(to, "runtime", m->runtime);
    json_text(to, "comm", m->comm);
    json_text(to, "command", m->command);
    json_identity(m, to);
    clp_numbers_json(CLP_NUMBER_TARGET, &(struct clp_subject){.s = s, .m = m}, to);
    json_counters(m, to);
    json_exceptions(&m->totals.exceptions, to);
    clp_strbuf_char(to, '}');
}

static void json_lane(const struct clp_status *s, const struct clp_outbox_lane *l,
                      struct clp_strbuf *to)
{
    clp_strbuf_str(to, "{\"name\":");
    clp_strbuf_json(to, l->name, strlen(l->name));
    json_text(to, "where", l->where);
    clp_numbers_json(CLP_NUMBER_UPLOAD, &(struct clp_subject){.s = s, .l = l}, to);
    clp_strbuf_str(to, ",\"dropped\":{");
    for (unsigned i = 0; i < CLP_DROPS; i++)
        clp_strbuf_printf(to, "%s\"%s\":%llu", i ? "," : "",
                          clp_delivery_drop_name((enum clp_delivery_drop)i),
                          (unsigned long long)l->dropped[i]);
    clp_strbuf_char(to, '}');
    json_text(to, "last_error", l->last_error);
    clp_strbuf_char(to, '}');
}

void clp_status_json(const struct clp_status *s, struct clp_strbuf *to)
{
    clp_strbuf_printf(to, "{\"version\":\"%s\",\"pid\":%d", CLP_VERSION, getpid());
    json_text(to, "configuration", s->config_path);
    clp_numbers_json(CLP_NUMBER_AGENT, &(struct clp_subject){.s = s}, to);
    clp_strbuf_str(to, ",\"targets\":[");
    for (size_t i = 0; i < s->roster->count; i++) {
        clp_strbuf_str(to, i ? ",\n" : "\n");
        json_member(s, s->roster->members[i], to);
    }
    clp_strbuf_str(to, "],\"uploads\":[");
    for (size_t i = 0; i < s->lane_count; i++) {
        clp_strbuf_str(to, i ? ",\n" : "\n");
        json_lane(s, &s->lanes[i], to);
    }
    clp_strbuf_str(to, "]}\n");
}

/* ---- audit --------------------------------------------------------------------------------- */

#define AUDIT_NAME "  %-16s" /* the longest: lock_contentions */

static void audit_time(const char *name, double ours, double kernels, struct clp_strbuf *to)
{
    if (kernels > 0)
        clp_strbuf_printf(to, AUDIT_NAME " profiles %.3f s, kernel %.3f s: %.2f %%\n", name,
                          ours / 1e9, kernels / 1e9, 100 * ratio(ours, kernels));
    else
        clp_strbuf_printf(to, AUDIT_NAME " nothing to compare before the second window has ended\n",
                          name);
}

static void audit_events(const struct clp_member_totals *t, struct clp_strbuf *to)
{
    static const enum clp_counter counters[CLP_AUDITED_EVENTS] = {
#define CLP_AUDITED(counter, type) CLP_CTR_##counter,
#include "agent/audited.def"
#undef CLP_AUDITED
    };
    for (size_t i = 0; i < CLP_AUDITED_EVENTS; i++) {
        const struct clp_audited_event *a = &t->audited_events[i];
        const struct clp_counter_info *info = clp_counter_info(counters[i]);
        if (a->counted > 0 || a->profiles > 0)
            clp_strbuf_printf(to, AUDIT_NAME " profiles %.0f, library %.0f %s: %.2f %%\n",
                              info->name, a->profiles, a->counted, info->unit,
                              100 * ratio(a->profiles, a->counted));
    }
}

/* How much of it is more than an estimate. */
static void audit_allocations(const struct clp_member_totals *t, struct clp_strbuf *to)
{
    uint64_t all = t->counters[CLP_CTR_ALLOC_BYTES];
    uint64_t counted = t->counters[CLP_CTR_ALLOC_COUNTED_BYTES];
    if (all == 0)
        return;
    clp_strbuf_printf(to, AUDIT_NAME " %.1f MB, ", "allocated", (double)all / 1e6);
    if (counted)
        clp_strbuf_printf(to, "%.2f %% of it counted by the runtime's own counters\n",
                          100 * ratio((double)counted, (double)all));
    else
        clp_strbuf_str(to, "estimated from the runtime's samples alone\n");
}

/* As the runtime told it last; by its events alone it does not tell. */
static void audit_runtime(const struct clp_member_totals *t, struct clp_strbuf *to)
{
    uint64_t heap = 0;
    if (t->counters[CLP_CTR_THREADS_MANAGED] == 0)
        return;
    for (unsigned c = CLP_CTR_HEAP_GEN0_BYTES; c <= CLP_CTR_HEAP_PINNED_BYTES; c++)
        heap += t->counters[c];
    clp_strbuf_printf(to, AUDIT_NAME " %llu threads, %llu of them workers of the pool", "managed",
                      (unsigned long long)t->counters[CLP_CTR_THREADS_MANAGED],
                      (unsigned long long)t->counters[CLP_CTR_THREADS_POOL]);
    if (heap)
        clp_strbuf_printf(to, ", heap %.1f MB after the last collection", (double)heap / 1048576.0);
    clp_strbuf_char(to, '\n');
}

static void audit_member(const struct clp_member *m, struct clp_strbuf *to)
{
    const struct clp_member_totals *t = &m->totals;
    clp_strbuf_printf(to, "process %d (", m->pid);
    add_clean(to, *m->service ? m->service : m->comm, 0);
    clp_strbuf_str(to, ")\n");
    audit_time("cpu", t->audited_cpu_ns, (double)t->kernel_cpu_ns, to);
    audit_time("wall", t->audited_wall_ns, t->kernel_wall_ns, to);
    clp_strbuf_printf(to, AUDIT_NAME " library %llu, kernel %llu\n", "threads",
                      (unsigned long long)t->counters[CLP_CTR_THREADS],
                      (unsigned long long)clp_kernel_threads(m->pid));
    clp_strbuf_printf(to, AUDIT_NAME " library %llu, agent %llu\n", "samples",
                      (unsigned long long)t->counters[CLP_CTR_SAMPLES],
                      (unsigned long long)t->samples);
    audit_events(t, to);
    audit_allocations(t, to);
    audit_runtime(t, to);
    clp_strbuf_printf(to, AUDIT_NAME " %.3f s of CPU, %.1f MB\n", "library",
                      t->counters[CLP_CTR_LIBRARY_CPU_NS] / 1e9,
                      t->counters[CLP_CTR_LIBRARY_BYTES] / 1048576.0);
    text_losses(m, to);
}

void clp_status_audit(const struct clp_status *s, struct clp_strbuf *to)
{
    size_t n = 0;
    for (size_t i = 0; i < s->roster->count; i++)
        if (s->roster->members[i]->state == CLP_MEMBER_PROFILING) {
            audit_member(s->roster->members[i], to);
            n++;
        }
    if (n == 0)
        clp_strbuf_str(to, "the agent profiles no process now\n");
}
