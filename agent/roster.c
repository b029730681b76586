#include "agent/roster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_PAUSE_NS (2 * CLP_NSEC_PER_SEC) /* after what may pass */
#define FIRST_REFUSED_PAUSE_NS                                                                     \
    (60 * CLP_NSEC_PER_SEC) /* after a no: each attempt costs the target */
#define LONGEST_PAUSE_NS (600 * CLP_NSEC_PER_SEC)
#define LONGEST_FULL_PAUSE_NS (15 * CLP_NSEC_PER_SEC) /* a recording ends, and there is a place */

static const char *const state_names[] = {
#define CLP_MEMBER_STATE(id, name) name,
#include "agent/states.def"
#undef CLP_MEMBER_STATE
};

const char *clp_member_state_name(enum clp_member_state state)
{
    return (size_t)state < CLP_ARRAY_LEN(state_names) ? state_names[state] : "unknown";
}

/* ---- members ------------------------------------------------------------------------------- */

static void describe(struct clp_member *m, const struct clp_dotnet *p)
{
    m->uid = p->uid;
    snprintf(m->comm, sizeof(m->comm), "%s", p->comm);
    if (p->state != CLP_DOTNET_READY)
        return;
    snprintf(m->runtime, sizeof(m->runtime), "%s", p->info.runtime_version);
    snprintf(m->command, sizeof(m->command), "%.*s", (int)sizeof(m->command) - 1,
             p->info.command_line);
    memcpy(m->cookie, p->info.cookie, sizeof(m->cookie));
}

static void remove_at(struct clp_roster *r, size_t i)
{
    clp_member_leave(r->members[i]);
    clp_type_counts_done(&r->members[i]->totals.exceptions);
    free(r->members[i]);
    r->members[i] = r->members[--r->count];
}

/* The one that is gone for longest makes room. */
static bool make_room(struct clp_roster *r)
{
    size_t oldest = r->count;
    for (size_t i = 0; i < r->count; i++) {
        const struct clp_member *m = r->members[i];
        if (m->state == CLP_MEMBER_GONE &&
            (oldest == r->count || m->since_ns < r->members[oldest]->since_ns))
            oldest = i;
    }
    if (oldest == r->count)
        return false;
    remove_at(r, oldest);
    return true;
}

void clp_member_leave(struct clp_member *m)
{
    m->target = clp_target_free(m->target);
    free(m->identity);
    m->identity = NULL;
    memset(m->session_counters, 0, sizeof(m->session_counters));
    m->kernel_at_window_ns = m->threads_at_window = 0;
}

static struct clp_member *find(const struct clp_roster *r, const struct clp_dotnet *p)
{
    for (size_t i = 0; i < r->count; i++) {
        struct clp_member *m = r->members[i];
        if (m->pid == p->pid && m->start_ticks == p->start_ticks)
            return m;
    }
    return NULL;
}

/* The same process by exec: another runtime instance, with numbers of its own; what was refused
 * before says nothing of it. */
static void take_instance(struct clp_member *m, const struct clp_dotnet *p)
{
    static const uint8_t none[CLP_GUID_BYTES];
    if (p->state != CLP_DOTNET_READY || memcmp(m->cookie, none, sizeof(none)) == 0 ||
        memcmp(m->cookie, p->info.cookie, sizeof(none)) == 0)
        return;
    clp_type_counts_done(&m->totals.exceptions);
    m->totals = (struct clp_member_totals){0};
    m->failures = 0;
    m->events = m->library_refused = false;
}

struct clp_member *clp_roster_meet(struct clp_roster *r, const struct clp_dotnet *p,
                                   uint64_t now_ns)
{
    struct clp_member *m = find(r, p);
    if (!m) {
        bool room = r->count < CLP_ROSTER_MAX || make_room(r);
        m = room ? calloc(1, sizeof(*m)) : NULL;
        if (!m) {
            r->refused++;
            return NULL;
        }
        m->pid = p->pid;
        m->start_ticks = p->start_ticks;
        m->since_ns = now_ns;
        r->members[r->count++] = m;
    }
    take_instance(m, p);
    describe(m, p);
    return m;
}

size_t clp_roster_gone(const struct clp_roster *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->count; i++)
        n += r->members[i]->state == CLP_MEMBER_GONE;
    return n;
}

void clp_roster_done(struct clp_roster *r)
{
    while (r->count > 0)
        remove_at(r, r->count - 1);
}

void clp_roster_tidy(struct clp_roster *r, const struct clp_discover_roots *roots, uint64_t now_ns)
{
    for (size_t i = r->count; i > 0; i--) {
        struct clp_member *m = r->members[i - 1];
        struct clp_dotnet same = {.pid = m->pid, .start_ticks = m->start_ticks};
        if (m->state == CLP_MEMBER_GONE && now_ns - m->since_ns >= CLP_ROSTER_GONE_NS)
            remove_at(r, i - 1);
        else if (!m->target && m->state != CLP_MEMBER_GONE && !clp_dotnet_alive(roots, &same))
            clp_member_set(m, CLP_MEMBER_GONE, now_ns, "the process has ended");
    }
    for (size_t gone = clp_roster_gone(r); gone > CLP_ROSTER_GONE_MAX; gone--)
        (void)make_room(r);
}

/* ---- states -------------------------------------------------------------------------------- */

void clp_member_set(struct clp_member *m, enum clp_member_state state, uint64_t now_ns,
                    const char *reason)
{
    if (m->state != state)
        m->since_ns = now_ns;
    m->state = state;
    snprintf(m->reason, sizeof(m->reason), "%s", reason);
}

uint64_t clp_member_pause_ns(int error, unsigned failures)
{
    uint64_t first = error == CLP_FAULT_REFUSED || error == -EACCES || error == -EPERM
                         ? FIRST_REFUSED_PAUSE_NS
                         : FIRST_PAUSE_NS;
    unsigned doublings = CLP_MIN(failures > 0 ? failures - 1 : 0, 16u);
    if (error == -EBADMSG) /* who writes nonsense is not asked again */
        return UINT64_MAX;
    return CLP_MIN(first << doublings,
                   error == CLP_FAULT_FULL ? LONGEST_FULL_PAUSE_NS : LONGEST_PAUSE_NS);
}

void clp_member_fail(struct clp_member *m, const struct clp_fault *fault, uint64_t now_ns)
{
    m->failures++;
    uint64_t pause_ns = clp_member_pause_ns(fault->error, m->failures);
    m->retry_at_ns = pause_ns == UINT64_MAX ? UINT64_MAX : now_ns + pause_ns;
    clp_member_set(m, CLP_MEMBER_REFUSED, now_ns, fault->text);
}
