#include "agent/eventpipe_engine.h"

#include "agent/engine.h"
#include "agent/eventpipe_clocks.h"
#include "agent/eventpipe_native.h"
#include "base/clock.h"
#include "base/core/random.h"
#include "sampler/nettrace/clr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES (64u << 10)
#define LONG_BUFFER_MB 64u
#define BURST_BUFFER_MB 32u
#define LIST_BUFFER_MB 256u                  /* a list is written at once, and may be long */
#define BURST_STOP_NS (2 * CLP_NSEC_PER_SEC) /* then the stream is closed, which ends it too */
#define STOP_LEFT_NS (2 * CLP_NSEC_PER_SEC)
#define STEP_NS (20 * CLP_NSEC_PER_MSEC) /* keeps bursts on time */
#define REST_NS (250 * CLP_NSEC_PER_MSEC)
#define CLOCK_NS (50 * CLP_NSEC_PER_MSEC)
/* The runtime writes what it has every 100 ms: after this long without a byte there was nothing. */
#define SILENCE_NS CLP_NSEC_PER_SEC

/* Keywords of the runtime's provider. */
#define KEY_GC 0x1u
#define KEY_LOADER 0x8u
#define KEY_JIT 0x10u
#define KEY_CONTENTION 0x4000u
#define KEY_EXCEPTION 0x8000u
#define KEY_ALLOCATION_SAMPLING 0x80000000000u
#define RUNDOWN_METHODS 0x30u
#define IDS_MAJOR 10u /* from this version on a session may list the events it wants */

#define AHEAD_SAMPLES_MAJOR 10u /* from this one on programs compiled ahead of time are sampled */

#define RUNTIME "Microsoft-Windows-DotNETRuntime"
#define SAMPLER "Microsoft-DotNETCore-SampleProfiler"
#define DIAGNOSTIC_SOURCE "Microsoft-Diagnostics-DiagnosticSource"
#define DIAGNOSTIC_EVENTS 0x2u
/* Every source of activities; their ids alone, and nothing that would make an activity be recorded
 * or sent on that would not be without us. */
#define ACTIVITIES "FilterAndPayloadSpecs=\"[AS]*/-Propagate:-TraceId;SpanId\""
#define TASKS "System.Threading.Tasks.TplEventSource"
#define TASKS_FLOW_ACTIVITY_IDS 0x80u
#define NOTHING "Clrpulse-None" /* a session needs a provider; nobody has this one */

/* Kinds of events that carry the id of an activity. */
#define LABELLED (CLP_EPB_EXCEPTIONS | CLP_EPB_ALLOCATIONS | CLP_EPB_LOCKS)

enum role {
    ROLE_METHODS,
    ROLE_EVENTS,
    ROLE_EXCEPTIONS,
    ROLE_SPANS,
    ROLE_BURST,
    ROLE_LIST,
    ROLE_COUNT
};
_Static_assert((unsigned)ROLE_COUNT == CLP_EPE_SESSIONS_MAX, "one session for each role");

struct session {
    struct clp_stream stream;
    struct clp_nettrace *reader;
    uint64_t asked_ns, live_ns;
    uint64_t last_ns;   /* when bytes came last */
    uint64_t lost_told; /* of its reader's count */
};

struct clp_epe {
    struct clp_epe_config config;
    struct clp_fault fault;
    enum clp_epe_state state;
    int32_t pid;
    uint64_t start_ticks;
    struct clp_stream_port port;
    struct session sessions[ROLE_COUNT];
    struct clp_epb *build;
    struct clp_clocks *clocks;
    struct clp_native *native; /* of a program compiled ahead of time */
    uint32_t wants;
    uint64_t start_ns, start_unix_ns, end_ns;
    uint64_t burst_from_ns, burst_to_ns; /* of the last burst that ran; 0: none yet */
    uint64_t burst_begin_ns;             /* when its period began */
    uint64_t next_burst_ns, next_clock_ns;
    uint64_t random; /* state */
    uint64_t lost;
    uint64_t refused_sessions; /* bursts and lists that did not come about */
    uint64_t lists;            /* that did */
    bool spans_asked;
    bool partial, listed; /* listed: for the end of this window */
    uint8_t chunk[CHUNK_BYTES];
};

/* ---- what each session asks for ------------------------------------------------------------ */

static const uint32_t method_ids[] = {CLP_CLR_METHOD_LOAD, CLP_CLR_METHOD_UNLOAD};
static const uint32_t event_ids[] = {
    CLP_CLR_GC_START,           CLP_CLR_GC_RESTART_END,   CLP_CLR_GC_SUSPEND_BEGIN,
    CLP_CLR_EXCEPTION,          CLP_CLR_CONTENTION_START, CLP_CLR_CONTENTION_STOP,
    CLP_CLR_ALLOCATION_SAMPLED,
};

/* A provider has one level in a session. .NET 10 takes a list of event ids, so one session at level
 * 4 carries exceptions, contention, collections and sampled allocations. Before, exceptions have a
 * session of their own at level 2, where each is one event instead of four, and allocation ticks
 * need level 5 of the collector's keyword. */
static struct clp_ipc_provider events_provider(uint32_t wants, bool ids)
{
    struct clp_ipc_provider p = {.name = RUNTIME, .level = 4};
    if (wants & CLP_EPB_COLLECTIONS)
        p.keywords |= KEY_GC;
    if (wants & CLP_EPB_LOCKS)
        p.keywords |= KEY_CONTENTION;
    if (wants & CLP_EPB_EXCEPTIONS && ids)
        p.keywords |= KEY_EXCEPTION;
    if (wants & CLP_EPB_ALLOCATIONS) {
        p.keywords |= ids ? KEY_ALLOCATION_SAMPLING : KEY_GC;
        p.level = ids ? 4 : 5;
    }
    p.event_ids = event_ids;
    p.event_id_count = CLP_ARRAY_LEN(event_ids);
    return p;
}

static struct clp_ipc_provider provider_of(const struct clp_epe *e, enum role role)
{
    switch (role) {
    case ROLE_METHODS:
        return (struct clp_ipc_provider){.name = RUNTIME,
                                         .level = 5,
                                         .keywords = KEY_JIT | KEY_LOADER,
                                         .event_ids = method_ids,
                                         .event_id_count = CLP_ARRAY_LEN(method_ids)};
    case ROLE_EVENTS:
        return events_provider(e->wants, e->port.runtime_major >= IDS_MAJOR);
    case ROLE_EXCEPTIONS:
        return (struct clp_ipc_provider){.name = RUNTIME, .level = 2, .keywords = KEY_EXCEPTION};
    case ROLE_SPANS:
        return (struct clp_ipc_provider){.name = DIAGNOSTIC_SOURCE,
                                         .level = 5,
                                         .keywords = DIAGNOSTIC_EVENTS,
                                         .arguments = ACTIVITIES};
    case ROLE_BURST:
        return (struct clp_ipc_provider){.name = SAMPLER, .level = 5};
    default:
        return (struct clp_ipc_provider){.name = NOTHING};
    }
}

static uint32_t buffer_of(enum role role)
{
    return role == ROLE_LIST    ? LIST_BUFFER_MB
           : role == ROLE_BURST ? BURST_BUFFER_MB
                                : LONG_BUFFER_MB;
}

static bool is_wanted(const struct clp_epe *e, enum role role)
{
    bool ids = e->port.runtime_major >= IDS_MAJOR;
    if (role == ROLE_EXCEPTIONS)
        return !ids && (e->wants & CLP_EPB_EXCEPTIONS);
    if (role == ROLE_EVENTS)
        return events_provider(e->wants, ids).keywords != 0;
    if (role == ROLE_SPANS)
        return e->config.spans != CLP_SPANS_OFF && (e->wants & LABELLED);
    if (role == ROLE_BURST)
        return e->wants & (CLP_EPB_CPU | CLP_EPB_WALLTIME);
    return true;
}

/* ---- sessions ------------------------------------------------------------------------------ */

static void take_event(void *context, const struct clp_nettrace_event *event)
{
    struct clp_epe *e = context;
    clp_epb_event(e->build, event);
}

static void code_is_lost(void *context, uint64_t capture_thread, uint64_t lost)
{
    struct clp_epe *e = context;
    (void)capture_thread;
    (void)lost;
    clp_epb_lost_code(e->build);
}

static void fail(struct clp_epe *e, int error, uint32_t hresult)
{
    const char *why = hresult ? clp_hresult_text(hresult) : strerror(-error);
    if (e->state == CLP_EPE_FAILED)
        return;
    if (hresult)
        (void)clp_fault_set(&e->fault, CLP_FAULT_REFUSED,
                            "the runtime of process %d refused a session: %s (0x%08x)", e->pid,
                            why ? why : "unknown reason", hresult);
    else if (error == -ETIMEDOUT)
        (void)clp_fault_set(&e->fault, error,
                            "process %d has not opened a session within %u s: it is stopped or has "
                            "no processor, or another tool holds its diagnostics port; try again",
                            e->pid, (unsigned)(CLP_STREAM_OPEN_NS / CLP_NSEC_PER_SEC));
    else
        (void)clp_fault_set(&e->fault, error, "cannot open a session with process %d: %s", e->pid,
                            why);
    e->state = CLP_EPE_FAILED;
}

/* Without a burst or a list the window has less; without the others it is no window. */
static void opening_failed(struct clp_epe *e, enum role role, int error, uint32_t hresult)
{
    bool can_do_without = role == ROLE_BURST || role == ROLE_SPANS ||
                          (role == ROLE_LIST && e->state != CLP_EPE_STARTING);
    if (!can_do_without) {
        fail(e, error, hresult);
        return;
    }
    e->sessions[role].reader = clp_nettrace_free(e->sessions[role].reader);
    e->refused_sessions++;
}

static void open_session(struct clp_epe *e, enum role role)
{
    struct session *s = &e->sessions[role];
    struct clp_ipc_provider providers[] = {
        provider_of(e, role),
        {.name = TASKS, .level = 4, .keywords = TASKS_FLOW_ACTIVITY_IDS},
    };
    struct clp_ipc_collect collect = {
        .buffer_mb = buffer_of(role),
        .rundown_keywords = role == ROLE_LIST ? RUNDOWN_METHODS : 0,
        .stacks = role != ROLE_METHODS && role != ROLE_LIST && role != ROLE_SPANS,
        .providers = providers,
        .provider_count = role == ROLE_SPANS ? 2 : 1,
    };
    struct clp_nettrace_config config = {.event = take_event, .context = e};
    if (role == ROLE_METHODS)
        config.gap = code_is_lost;
    s->reader = clp_nettrace_free(s->reader);
    int r = clp_nettrace_new(&config, &s->reader);
    s->asked_ns = clp_clock_monotonic_ns();
    if (r == 0)
        r = clp_stream_open(&s->stream, &collect, s->asked_ns);
    if (r < 0)
        opening_failed(e, role, r, 0);
}

static void session_is_live(struct clp_epe *e, enum role role, uint64_t now_ns)
{
    struct session *s = &e->sessions[role];
    s->live_ns = s->last_ns = now_ns;
    (void)!clp_journal_add(e->config.journal, e->pid, e->start_ticks, s->stream.id);
    if (role == ROLE_LIST) { /* its list comes when it stops */
        e->lists++;
        clp_stream_stop(&s->stream, now_ns);
    }
}

/* The next burst comes at random, a half to one and a half rests away: a program that does
 * something each second must not always, or never, be seen at it. The sampler may be on for longer
 * than it was asked for, as a target without a processor comes late to a stop. Then it rests for
 * longer too, so that on average it runs for no more than its part of the time. */
static void rest_for_its_part(struct clp_epe *e)
{
    uint64_t now_ns = clp_clock_monotonic_ns();
    double parts = (double)e->config.period_ns / (double)e->config.burst_ns;
    double on_ns = (double)(now_ns - e->sessions[ROLE_BURST].asked_ns);
    double rest_ns = CLP_MAX((double)e->config.period_ns, on_ns * parts) - on_ns;
    e->next_burst_ns = now_ns + (uint64_t)(rest_ns * (0.5 + clp_random_unit(&e->random)));
}

static void session_is_over(struct clp_epe *e, enum role role)
{
    struct session *s = &e->sessions[role];
    if (!s->reader)
        return;
    if (role == ROLE_BURST)
        rest_for_its_part(e);
    clp_nettrace_finish(s->reader);
    e->lost += clp_nettrace_counts(s->reader)->lost - s->lost_told;
    s->lost_told = 0;
    if (!clp_nettrace_is_complete(s->reader))
        e->partial = true;
    s->reader = clp_nettrace_free(s->reader);
    (void)!clp_journal_remove(e->config.journal, e->pid, e->start_ticks, s->stream.id);
}

static bool is_open(const struct clp_epe *e, enum role role)
{
    return e->sessions[role].stream.state != CLP_STREAM_CLOSED;
}

/* What came, a bounded part of it: the other sessions are waiting. */
static void read_session(struct clp_epe *e, enum role role)
{
    struct session *s = &e->sessions[role];
    for (unsigned i = 0; i < 64; i++) {
        int64_t n = clp_stream_read(&s->stream, e->chunk, sizeof(e->chunk));
        if (n == -EAGAIN)
            return;
        if (n <= 0)
            return;
        s->last_ns = clp_clock_monotonic_ns();
        if (clp_nettrace_feed(s->reader, e->chunk, (size_t)n) < 0) {
            clp_stream_stop(&s->stream, clp_clock_monotonic_ns());
            e->partial = true;
        }
    }
}

static void step_session(struct clp_epe *e, enum role role, uint64_t now_ns)
{
    struct session *s = &e->sessions[role];
    if (s->stream.state == CLP_STREAM_OPENING) {
        int r = clp_stream_opened(&s->stream, now_ns);
        if (r == 0)
            session_is_live(e, role, now_ns);
        else if (r != -EAGAIN)
            opening_failed(e, role, r, s->stream.hresult);
    }
    if (s->stream.state == CLP_STREAM_LIVE || s->stream.state == CLP_STREAM_STOPPING)
        read_session(e, role);
    clp_stream_step(&s->stream, now_ns);
    if (s->stream.state == CLP_STREAM_CLOSED && s->reader)
        session_is_over(e, role);
}

/* ---- clocks and bursts --------------------------------------------------------------------- */

static void clock_moved(void *context, const struct clp_clocks_moved *m)
{
    struct clp_epe *e = context;
    clp_epb_clock(e->build, m->tid, m->from_ns, m->to_ns, m->cpu_ns);
}

static void read_clocks(struct clp_epe *e, uint64_t now_ns)
{
    if (clp_clocks_read(e->clocks, clock_moved, e) < 0)
        e->partial = true;
    e->next_clock_ns = now_ns + CLOCK_NS;
}

/* Until when all loads and unloads of code have been told. */
static uint64_t named_until(struct clp_epe *e, uint64_t now_ns)
{
    const struct session *s = &e->sessions[ROLE_METHODS];
    if (!s->reader)
        return now_ns; /* that stream is over and has told all */
    if (now_ns < s->last_ns + SILENCE_NS)
        return clp_nettrace_given_ticks(s->reader);
    clp_nettrace_finish(s->reader); /* what the writer did not flag as certain is by now */
    return now_ns - SILENCE_NS;
}

/* What the last burst saw stands for the time until now. */
static void close_period(struct clp_epe *e, uint64_t now_ns)
{
    if (e->burst_from_ns == 0)
        return;
    clp_epb_burst(e->build, e->burst_from_ns, e->burst_to_ns, now_ns - e->burst_begin_ns);
    clp_epb_settle(e->build, now_ns, named_until(e, now_ns));
    e->burst_from_ns = 0;
    e->burst_begin_ns = now_ns;
}

static void begin_burst(struct clp_epe *e, uint64_t now_ns)
{
    read_clocks(e, now_ns);
    close_period(e, now_ns);
    open_session(e, ROLE_BURST);
    e->next_burst_ns = now_ns + e->config.period_ns; /* unless it comes about and says more */
}

static void end_burst(struct clp_epe *e, uint64_t now_ns)
{
    struct session *s = &e->sessions[ROLE_BURST];
    e->burst_from_ns = s->live_ns;
    e->burst_to_ns = now_ns;
    clp_stream_stop(&s->stream, now_ns);
    s->stream.stop_until_ns = now_ns + BURST_STOP_NS;
    read_clocks(e, now_ns);
}

/* Without a sampler nothing else gives events their place. */
static void settle_events(struct clp_epe *e, uint64_t now_ns)
{
    if (now_ns < e->next_burst_ns)
        return;
    clp_epb_settle(e->build, now_ns, named_until(e, now_ns));
    e->next_burst_ns = now_ns + e->config.period_ns;
}

static void step_bursts(struct clp_epe *e, uint64_t now_ns)
{
    const struct session *s = &e->sessions[ROLE_BURST];
    if (!is_wanted(e, ROLE_BURST)) {
        settle_events(e, now_ns);
        return;
    }
    if (s->stream.state == CLP_STREAM_LIVE && now_ns >= s->live_ns + e->config.burst_ns)
        end_burst(e, now_ns);
    else if (s->stream.state == CLP_STREAM_LIVE && now_ns >= e->next_clock_ns)
        read_clocks(e, now_ns);
    else if (s->stream.state == CLP_STREAM_CLOSED && now_ns >= e->next_burst_ns)
        begin_burst(e, now_ns);
}

/* ---- states -------------------------------------------------------------------------------- */

/* A session that was live and is closed again ended with its process. */
static bool has_ended(const struct clp_epe *e)
{
    for (enum role r = ROLE_METHODS; r <= ROLE_EXCEPTIONS; r++)
        if (e->sessions[r].live_ns && !is_open(e, r))
            return true;
    return false;
}

static void step_start(struct clp_epe *e, uint64_t now_ns)
{
    bool ready = true;
    if (has_ended(e)) {
        (void)clp_fault_set(&e->fault, -ESRCH, "process %d ended before the recording began",
                            e->pid);
        e->state = CLP_EPE_FAILED;
        return;
    }
    for (enum role r = ROLE_METHODS; r <= ROLE_EXCEPTIONS; r++)
        ready &= !is_wanted(e, r) || e->sessions[r].stream.state == CLP_STREAM_LIVE;
    if (!ready)
        return;
    if (e->start_ns == 0 && !is_open(e, ROLE_LIST)) {
        open_session(e, ROLE_LIST); /* after the session of loads: nothing falls in between */
        e->start_ns = now_ns;
        return;
    }
    if (is_open(e, ROLE_LIST))
        return;
    e->start_ns = e->burst_begin_ns = now_ns;
    e->start_unix_ns = clp_clock_realtime_ns();
    e->partial = false;
    e->state = CLP_EPE_LIVE;
    clp_epb_begin(e->build, now_ns);
    read_clocks(e, now_ns);
}

/* The long sessions end when the target does. */
static bool target_is_gone(const struct clp_epe *e)
{
    return !is_open(e, ROLE_METHODS);
}

static void stop_all(struct clp_epe *e, uint64_t now_ns)
{
    for (enum role r = ROLE_METHODS; r < ROLE_COUNT; r++)
        clp_stream_stop(&e->sessions[r].stream, now_ns);
}

/* The sampler ends before the window does: what it is asked for now would be of the next. */
static void rest_sampler(struct clp_epe *e, uint64_t now_ns)
{
    struct session *s = &e->sessions[ROLE_BURST];
    if (s->stream.state == CLP_STREAM_LIVE)
        end_burst(e, now_ns);
    else if (s->stream.state == CLP_STREAM_OPENING && e->state == CLP_EPE_ENDING)
        clp_stream_close(&s->stream);
}

/* The window ends when its last clock has been read. */
static void close_window(struct clp_epe *e, uint64_t now_ns)
{
    if (!target_is_gone(e))
        read_clocks(e, now_ns);
    e->end_ns = clp_clock_monotonic_ns();
    if (e->wants & CLP_EPB_CPU)
        clp_epb_short_lived(e->build, clp_clocks_untold_ns(e->clocks));
}

/* Whether the list of methods is being fetched for this window, because a name is missing. */
static bool fetches_names(struct clp_epe *e)
{
    if (!e->listed && !target_is_gone(e) && clp_epb_nameless(e->build) > 0) {
        e->listed = true;
        open_session(e, ROLE_LIST);
    }
    return is_open(e, ROLE_LIST);
}

/* The burst that is on ends, then the window, then the names of its time are awaited: what the
 * runtime tells of code lags behind. */
static void step_cut(struct clp_epe *e, uint64_t now_ns)
{
    if (target_is_gone(e)) {
        if (e->end_ns == 0)
            close_window(e, now_ns);
        e->state = CLP_EPE_ENDING;
        return;
    }
    rest_sampler(e, now_ns);
    if (is_open(e, ROLE_BURST))
        return;
    if (e->end_ns == 0) {
        close_window(e, now_ns);
        close_period(e, e->end_ns);
    }
    if (is_open(e, ROLE_LIST) || named_until(e, now_ns) < e->end_ns)
        return;
    if (!fetches_names(e))
        e->state = CLP_EPE_CUT;
}

/* First the sampler ends, then the names of what it saw are asked for, then the rest ends. */
static void step_end(struct clp_epe *e, uint64_t now_ns)
{
    if (is_open(e, ROLE_BURST) || is_open(e, ROLE_LIST))
        return;
    close_period(e, e->end_ns);
    if (fetches_names(e))
        return;
    stop_all(e, now_ns);
    bool open = false;
    for (enum role r = ROLE_METHODS; r < ROLE_COUNT; r++)
        open |= is_open(e, r);
    if (!open)
        e->state = CLP_EPE_DONE;
}

/* Once, and not in the first moments of a program, when its event sources are being set up. */
static void open_spans(struct clp_epe *e)
{
    if (e->spans_asked || !is_wanted(e, ROLE_SPANS) ||
        clp_dotnet_age_ns(e->start_ticks) < CLP_DOTNET_GROWN_UP_NS)
        return;
    e->spans_asked = true;
    open_session(e, ROLE_SPANS);
}

enum clp_epe_state clp_epe_step(struct clp_epe *e)
{
    uint64_t now_ns = clp_clock_monotonic_ns();
    for (enum role r = ROLE_METHODS; r < ROLE_COUNT && e->state != CLP_EPE_FAILED; r++)
        step_session(e, r, now_ns);
    switch (e->state) {
    case CLP_EPE_STARTING:
        step_start(e, now_ns);
        break;
    case CLP_EPE_LIVE:
        if (target_is_gone(e)) {
            clp_epe_end(e);
            break;
        }
        open_spans(e);
        step_bursts(e, now_ns);
        break;
    case CLP_EPE_CUTTING:
        step_cut(e, now_ns);
        break;
    case CLP_EPE_ENDING:
        step_end(e, now_ns);
        break;
    case CLP_EPE_CUT:
    case CLP_EPE_DONE:
    case CLP_EPE_FAILED:
        break;
    }
    return e->state;
}

void clp_epe_cut(struct clp_epe *e)
{
    if (e->state != CLP_EPE_LIVE)
        return;
    e->end_ns = 0;
    e->state = CLP_EPE_CUTTING;
}

void clp_epe_end(struct clp_epe *e)
{
    uint64_t now_ns = clp_clock_monotonic_ns();
    if (e->state != CLP_EPE_LIVE && e->state != CLP_EPE_CUTTING)
        return;
    bool closed = e->state == CLP_EPE_CUTTING && e->end_ns != 0;
    e->state = CLP_EPE_ENDING;
    rest_sampler(e, now_ns);
    if (!closed)
        close_window(e, now_ns);
}

/* ---- for the owner ------------------------------------------------------------------------- */

nfds_t clp_epe_fds(const struct clp_epe *e, struct pollfd *fds)
{
    nfds_t n = 0;
    for (enum role r = ROLE_METHODS; r < ROLE_COUNT; r++)
        n += clp_stream_fds(&e->sessions[r].stream, fds + n);
    return n;
}

bool clp_epe_is_cutting(const struct clp_epe *e)
{
    return e->state == CLP_EPE_CUTTING || e->state == CLP_EPE_CUT;
}

/* Between bursts nothing has to be on time. */
uint64_t clp_epe_patience_ns(const struct clp_epe *e)
{
    uint64_t now_ns = clp_clock_monotonic_ns();
    if (e->state != CLP_EPE_LIVE || is_open(e, ROLE_BURST))
        return STEP_NS;
    return e->next_burst_ns > now_ns ? CLP_MIN(e->next_burst_ns - now_ns, REST_NS) : STEP_NS;
}

uint64_t clp_epe_samples(const struct clp_epe *e)
{
    return clp_epb_samples(e->build);
}

uint64_t clp_epe_start_ns(const struct clp_epe *e)
{
    return e->state == CLP_EPE_STARTING ? 0 : e->start_ns;
}

const struct clp_fault *clp_epe_fault(const struct clp_epe *e)
{
    return &e->fault;
}

uint64_t clp_epe_waits_since_ns(const struct clp_epe *e)
{
    uint64_t since_ns = 0;
    for (enum role r = ROLE_METHODS; r < ROLE_COUNT; r++)
        if (e->sessions[r].stream.state == CLP_STREAM_OPENING &&
            (since_ns == 0 || e->sessions[r].asked_ns < since_ns))
            since_ns = e->sessions[r].asked_ns;
    return since_ns;
}

static void begin_window(struct clp_epe *e, uint64_t start_ns, uint64_t start_unix_ns)
{
    e->start_ns = start_ns;
    e->start_unix_ns = start_unix_ns;
    e->end_ns = e->lost = e->refused_sessions = e->lists = 0;
    e->partial = e->listed = false;
    e->state = CLP_EPE_LIVE;
}

/* What the long sessions have lost so far is told once. */
static uint64_t take_lost(struct clp_epe *e)
{
    uint64_t lost = e->lost;
    for (enum role r = ROLE_METHODS; r < ROLE_COUNT; r++) {
        struct session *s = &e->sessions[r];
        uint64_t now = s->reader ? clp_nettrace_counts(s->reader)->lost : 0;
        lost += now - s->lost_told;
        s->lost_told = now;
    }
    return lost;
}

int clp_epe_window(struct clp_epe *e, struct clp_epe_window *ret)
{
    struct clp_epb_window w = {
        .start_unix_ns = e->start_unix_ns,
        .duration_ns = e->end_ns - e->start_ns,
        .end_ticks = e->end_ns,
        .lost = take_lost(e),
        .refused_sessions = e->refused_sessions,
        .lists = e->lists,
        .partial = e->partial,
    };
    *ret = (struct clp_epe_window){
        .start_ns = e->start_ns,
        .duration_ns = w.duration_ns,
        .start_unix_ns = w.start_unix_ns,
        .samples = clp_epb_samples(e->build),
    };
    int r = clp_epb_finish(e->build, &w, &ret->profile);
    if (r == 0 && e->state == CLP_EPE_CUT)
        begin_window(e, e->end_ns, w.start_unix_ns + w.duration_ns);
    return r;
}

static const char *thread_name(void *context, uint64_t tid)
{
    struct clp_epe *e = context;
    return clp_clocks_name(e->clocks, tid);
}

static bool native_name(void *context, uint64_t address, char *name, size_t cap)
{
    struct clp_epe *e = context;
    return clp_native_name(e->native, address, name, cap);
}

static int start(struct clp_epe *e, const struct clp_dotnet *found)
{
    if (e->config.symbols && clp_engine_is_native_aot(found->pid))
        (void)!clp_native_new(found->pid, found->root_fd, e->config.symbols, &e->native);
    struct clp_epb_config build = {
        .thread_name = thread_name, .context = e, .cpu = true, .wants = e->wants};
    if (e->native)
        build.native_name = native_name;
    build.unsampled = e->native && e->port.runtime_major < AHEAD_SAMPLES_MAJOR;
    build.spans = e->config.spans;
    int r = clp_epb_new(&build, &e->build);
    if (r == 0) {
        clp_epb_begin(e->build, UINT64_MAX);
        r = clp_clocks_new(found->pid, found->ns_pid == found->pid, &e->clocks);
    }
    for (enum role role = ROLE_METHODS; r == 0 && role <= ROLE_EXCEPTIONS; role++)
        if (is_wanted(e, role))
            open_session(e, role);
    return r;
}

int clp_epe_new(const struct clp_dotnet *found, const struct clp_epe_config *config,
                struct clp_epe **ret, struct clp_fault *f)
{
    struct clp_epe *e = calloc(1, sizeof(*e));
    if (!e)
        return clp_fault_set(f, -ENOMEM, "out of memory");
    e->config = *config;
    e->pid = found->pid;
    e->start_ticks = found->start_ticks;
    e->port = clp_stream_port_of(found);
    e->wants = clp_epb_wants(config->types);
    e->random = clp_clock_monotonic_ns() | 1;
    for (enum role r = ROLE_METHODS; r < ROLE_COUNT; r++)
        clp_stream_init(&e->sessions[r].stream, &e->port);
    int r = start(e, found);
    if (r < 0)
        (void)clp_fault_set(f, r, "cannot profile process %d: %s", found->pid, strerror(-r));
    if (r == 0 && e->state == CLP_EPE_FAILED) {
        *f = e->fault;
        r = f->error;
    }
    if (r < 0) {
        clp_epe_free(e);
        return r;
    }
    *ret = e;
    return 0;
}

struct clp_epe *clp_epe_free(struct clp_epe *e)
{
    if (!e)
        return NULL;
    bool answers = true; /* one that does not is asked once; the journal keeps the rest */
    for (enum role r = ROLE_METHODS; r < ROLE_COUNT; r++) {
        struct session *s = &e->sessions[r];
        bool live = s->stream.state == CLP_STREAM_LIVE || s->stream.state == CLP_STREAM_STOPPING;
        clp_stream_close(&s->stream); /* first: a stop waits for the reader of an open stream */
        if (live && answers)
            answers = clp_stream_stop_left(&e->port, s->stream.id, STOP_LEFT_NS) == 0;
        if (live && answers)
            (void)!clp_journal_remove(e->config.journal, e->pid, e->start_ticks, s->stream.id);
        clp_nettrace_free(s->reader);
    }
    clp_clocks_free(e->clocks);
    clp_native_free(e->native);
    clp_epb_free(e->build);
    free(e);
    return NULL;
}
