#include "agent/daemon_parts.h"

#include "agent/numbers.h"
#include "agent/status.h"
#include "base/clock.h"
#include "base/log.h"
#include "pprof/encode.h"

#include <string.h>

/* ---- accounts ------------------------------------------------------------------------------ */

void clp_daemon_count(struct clp_member *m)
{
    const struct clp_session *s = m->target ? clp_target_session(m->target) : NULL;
    for (unsigned c = 0; s && c < CLP_CTR_COUNT; c++) {
        uint64_t now = clp_session_counter(s, (enum clp_counter)c);
        if (clp_counter_is_state(c))
            m->totals.counters[c] = now;
        else if (now > m->session_counters[c]) /* the target's word: it may say anything */
            m->totals.counters[c] += now - m->session_counters[c];
        m->session_counters[c] = CLP_MAX(now, m->session_counters[c]);
    }
}

/* The kernel's clock is read a moment after the library has read it; over many windows that moment
 * counts once. */
static void audit(struct clp_member *m, const struct clp_window *w)
{
    uint64_t now = w->kernel_cpu_ns, threads = clp_kernel_threads(m->pid);
    int cpu = clp_profile_value_index(w->profile, "cpu");
    int wall = clp_profile_value_index(w->profile, "wall");
    bool whole = m->kernel_at_window_ns && now > m->kernel_at_window_ns && !w->last;
    if (whole && cpu >= 0) {
        m->totals.kernel_cpu_ns += now - m->kernel_at_window_ns;
        m->totals.audited_cpu_ns += clp_profile_total(w->profile, (size_t)cpu);
    }
    if (whole && wall >= 0) {
        m->totals.kernel_wall_ns +=
            (double)w->duration_ns * (double)(m->threads_at_window + threads) / 2;
        m->totals.audited_wall_ns += clp_profile_total(w->profile, (size_t)wall);
    }
    m->kernel_at_window_ns = now;
    m->threads_at_window = threads;
}

static void audit_events(struct clp_member *m, const struct clp_window *w)
{
    static const struct {
        enum clp_counter counter;
        const char *type;
    } events[CLP_AUDITED_EVENTS] = {
#define CLP_AUDITED(counter, type) {CLP_CTR_##counter, type},
#include "agent/audited.def"
#undef CLP_AUDITED
    };
    for (size_t i = 0; w->marked && w->counted && i < CLP_AUDITED_EVENTS; i++) {
        int at = clp_profile_value_index(w->profile, events[i].type);
        if (at < 0)
            continue;
        m->totals.audited_events[i].profiles += clp_profile_total(w->profile, (size_t)at);
        m->totals.audited_events[i].counted += (double)w->counted[events[i].counter];
    }
    if (w->exceptions)
        clp_type_counts_add_all(&m->totals.exceptions, w->exceptions);
}

/* ---- headers ------------------------------------------------------------------------------- */

static void comment(const struct clp_member *m, const struct clp_dotnet *p,
                    struct clp_profile *profile)
{
    const struct clp_identity *id = m->identity;
    const struct {
        const char *name, *value;
    } lines[] = {
        {"service", id->service},
        {"env", id->env},
        {"version", id->version},
        {"host", id->host},
        {"runtime_id", id->runtime_id},
        {"container_id", id->container_id},
        {"git_repository", id->git_repository},
        {"git_commit", id->git_commit},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(lines); i++)
        if (*lines[i].value)
            (void)!clp_profile_comment(profile, "%s=%s", lines[i].name, lines[i].value);
    for (size_t i = 0; i < CLP_MIN(id->tag_count, 32u); i++)
        (void)!clp_profile_comment(profile, "tag=%s:%s", id->tags[i].key, id->tags[i].value);
    (void)!clp_profile_comment(profile, "process=%d", p->pid);
    (void)!clp_profile_comment(profile, "runtime=.NET %s", p->info.runtime_version);
}

/* The next window's number in the making. */
struct number {
    struct clp_daemon *d;
    struct clp_member *m;
    uint64_t seq;
};

/* The profile is safe, and nobody has it yet: only now the number is left to those who come after.
 * After an agent that was killed before, the next one finds it in the spool (clp_seq_found). */
static void take_number(void *context)
{
    struct number *n = context;
    struct clp_session *s = clp_target_session(n->m->target);
    n->m->totals.next_seq = n->seq + 1;
    if (s)
        clp_session_leave_seq(s, n->seq + 1);
    int r = clp_seq_taken(n->d->seq, n->m->cookie, n->seq);
    if (r < 0)
        clp_log_warning("the number of a profile of process %d cannot be kept in state.dir: %s",
                        n->m->pid, strerror(-r));
}

static int submit(struct clp_daemon *d, struct clp_member *m, const struct clp_window *w,
                  uint64_t seq, const struct clp_encoded *e)
{
    struct number number = {d, m, seq};
    const struct clp_identity *id = m->identity;
    struct clp_profile_tag tags[CLP_TAGS_MAX];
    for (size_t i = 0; i < id->tag_count; i++)
        tags[i] = (struct clp_profile_tag){id->tags[i].key, id->tags[i].value};
    struct clp_profile_header header = {
        .service = id->service,
        .env = id->env,
        .version = id->version,
        .host = id->host,
        .runtime_id = id->runtime_id,
        .runtime_version = m->runtime,
        .container_id = id->container_id,
        .git_repository = id->git_repository,
        .git_commit = id->git_commit,
        .tags = tags,
        .tag_count = id->tag_count,
        .pid = m->pid,
        .ns_pid = id->ns_pid,
        .cgroup_inode = id->cgroup_inode,
        .endpoints = w->requests,
        .endpoint_count = w->request_count,
        .start_unix_ns = w->start_unix_ns,
        .end_unix_ns = w->start_unix_ns + w->duration_ns,
        .start_monotonic_ns = w->start_ns,
        .end_monotonic_ns = w->start_ns + w->duration_ns,
        .seq = seq,
        .kinds = w->types,
        .marked = w->marked,
    };
    if (!d->handed_ns)
        d->handed_ns = clp_clock_monotonic_ns();
    return clp_outbox_submit(d->outbox, &header, e->data, e->len, take_number, &number);
}

/* ---- windows ------------------------------------------------------------------------------- */

/* Once a number was taken here, the file says nothing that we do not know. */
static uint64_t next_number(const struct clp_daemon *d, const struct clp_member *m)
{
    const struct clp_session *s = clp_target_session(m->target);
    uint64_t kept = s ? clp_session_kept_seq(s) : 0;
    if (m->totals.next_seq == 0 || kept > CLP_SEQ_MAX)
        kept = clp_seq_next(d->seq, m->cookie, kept);
    return CLP_MAX(m->totals.next_seq, kept);
}

static void deliver(struct clp_daemon *d, struct clp_member *m, const struct clp_window *w)
{
    uint64_t seq = next_number(d, m);
    struct clp_encoded e;
    (void)!clp_profile_comment(w->profile, "profile_seq=%llu", (unsigned long long)seq);
    int r = clp_profile_encode(w->profile, NULL, &e);
    if (r == 0) {
        m->totals.bytes += e.len;
        r = submit(d, m, w, seq, &e);
        clp_encoded_done(&e);
    }
    if (r == 0) {
        m->totals.windows++;
        return;
    }
    m->totals.lost++;
    clp_log_error("a profile of process %d is lost: %s", m->pid, strerror(-r));
}

static struct clp_member *member_of(struct clp_daemon *d, const struct clp_target *t)
{
    for (size_t i = 0; i < d->roster.count; i++)
        if (d->roster.members[i]->target == t)
            return d->roster.members[i];
    return NULL;
}

void clp_daemon_take_window(void *daemon, struct clp_target *t, const struct clp_window *w)
{
    struct clp_daemon *d = daemon;
    struct clp_member *m = member_of(d, t);
    if (!m)
        return;
    clp_daemon_count(m);
    audit(m, w);
    audit_events(m, w);
    m->totals.samples += w->samples;
    if (w->samples == 0) {
        m->totals.empty++;
        return;
    }
    comment(m, clp_target_process(t), w->profile);
    deliver(d, m, w);
}
