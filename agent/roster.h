/* Every .NET process that the agent knows of, what it does with it, and why.
 *
 *     seen ---> attaching ---> profiling ---> gone
 *       ^           |              |
 *       |           v              v
 *       +------- refused <---------+          a later attempt, after a pause that grows
 *
 * `seen` is also where a process stays that the settings leave alone. Gone ones are kept for a
 * while for `clrpulse status`. One thread. */
#ifndef CLP_AGENT_ROSTER_H
#define CLP_AGENT_ROSTER_H

#include "agent/fault.h"
#include "agent/identity.h"
#include "agent/limits.h"
#include "agent/target.h"
#include "agent/type_counts.h"
#include "base/core/core.h"

#define CLP_ROSTER_MAX 1024u
#define CLP_ROSTER_GONE_NS (600 * CLP_NSEC_PER_SEC) /* how long gone ones are shown */
#define CLP_ROSTER_GONE_MAX 64u                     /* and how many, the latest */

enum clp_member_state {
#define CLP_MEMBER_STATE(id, name) CLP_MEMBER_##id,
#include "agent/states.def"
#undef CLP_MEMBER_STATE
    CLP_MEMBER_STATE_COUNT
};
const char *clp_member_state_name(enum clp_member_state state);

/* Values of events that are compared with the library's counters. */
enum {
#define CLP_AUDITED(counter, type) CLP_AUDITED_##counter,
#include "agent/audited.def"
#undef CLP_AUDITED
    CLP_AUDITED_EVENTS
};

/* What profiling a process has given so far. */
struct clp_member_totals {
    uint64_t windows, empty; /* empty: without a sample, so without a number and not sent */
    uint64_t lost;           /* not accepted by the outbox */
    uint64_t samples;        /* additions, as they came from the ring */
    uint64_t bytes;          /* of encoded profiles */
    uint64_t next_seq;
    uint64_t counters[CLP_CTR_COUNT]; /* the library's, of all sessions together */
    /* For the comparison with the kernel's clock: both of the same windows, from the first one that
     * was confirmed by the library to the last. */
    double audited_cpu_ns;
    uint64_t kernel_cpu_ns;
    /* Thread time of the same windows; the kernel's from its number of threads at both ends. */
    double audited_wall_ns, kernel_wall_ns;
    struct clp_audited_event { /* what the profiles have, and what the library has counted */
        double profiles, counted;
    } audited_events[CLP_AUDITED_EVENTS];
    struct clp_type_counts exceptions;
};

struct clp_member {
    int32_t pid;
    uint64_t start_ticks;
    uint32_t uid;
    char comm[64], runtime[64], command[256];
    uint8_t cookie[CLP_GUID_BYTES];
    enum clp_member_state state;
    uint64_t since_ns;            /* in this state, CLOCK_MONOTONIC */
    char reason[CLP_FAULT_BYTES]; /* of seen, refused, gone; what limits profiling; else "" */
    unsigned failures;            /* in a row */
    uint64_t retry_at_ns;         /* refused; UINT64_MAX: never again */

    char service[CLP_SERVICE_BYTES]; /* as far as it is known */
    struct clp_identity *identity;   /* with the target; NULL otherwise */
    struct clp_target *target;       /* attaching and profiling */
    bool events; /* the library cannot be had: the engine eventpipe, for this reason */
    char why_events[CLP_FAULT_BYTES];
    bool library_refused;                     /* by the runtime, which is that reason */
    size_t fd_count;                          /* of its session, in the loop's last round */
    bool woken;                               /* one of them has something */
    uint64_t session_counters[CLP_CTR_COUNT]; /* of this session at its last window */
    uint64_t kernel_at_window_ns;             /* 0: not known */
    struct clp_limits limits;                 /* with the target */
    uint64_t threads_at_window;
    struct clp_member_totals totals;
};

struct clp_roster {
    struct clp_member *members[CLP_ROSTER_MAX];
    size_t count;
    uint64_t refused; /* processes beyond CLP_ROSTER_MAX */
};

/* The process's entry, made when it is new; a pid with another start time is another process. NULL
 * when the roster is full of living ones, or for want of memory. */
struct clp_member *clp_roster_meet(struct clp_roster *r, const struct clp_dotnet *p,
                                   uint64_t now_ns);
/* How many of the members are gone. */
size_t clp_roster_gone(const struct clp_roster *r);
void clp_roster_done(struct clp_roster *r);
/* Forgets those that are gone for CLP_ROSTER_GONE_NS or beyond CLP_ROSTER_GONE_MAX, marks those as
 * gone that have ended without having been a target. */
void clp_roster_tidy(struct clp_roster *r, const struct clp_discover_roots *roots, uint64_t now_ns);

void clp_member_set(struct clp_member *m, enum clp_member_state state, uint64_t now_ns,
                    const char *reason);
/* Ends the session and what belongs to it. */
void clp_member_leave(struct clp_member *m);
/* A failed attempt: state and reason, and when to try again. */
void clp_member_fail(struct clp_member *m, const struct clp_fault *fault, uint64_t now_ns);
/* Pauses by kind of failure and number of failures in a row. */
uint64_t clp_member_pause_ns(int error, unsigned failures);

#endif
