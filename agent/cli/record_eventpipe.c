/* clrpulse record with the engine that loads nothing. */
#include "agent/cli/record_eventpipe.h"

#include "agent/eventpipe_engine.h"
#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>

/* Sessions that a killed record left in processes of this user are stopped first. */
static struct clp_journal *open_journal(void)
{
    char folder[256];
    struct clp_journal *j = NULL;
    if (clp_journal_user_folder(folder, sizeof(folder)) < 0 || clp_journal_open(folder, &j) < 0)
        return NULL;
    (void)!clp_journal_recover(j);
    return j;
}

static enum clp_epe_state step(struct clp_epe *e, int stop_fd, bool *interrupted)
{
    struct pollfd fds[1 + CLP_EPE_FDS] = {{.fd = *interrupted ? -1 : stop_fd, .events = POLLIN}};
    nfds_t n = 1 + clp_epe_fds(e, fds + 1);
    (void)poll(fds, n, (int)(clp_epe_patience_ns(e) / CLP_NSEC_PER_MSEC));
    if (fds[0].revents)
        *interrupted = true;
    return clp_epe_step(e);
}

/* Once: the target may be slow for a minute. */
static void say_slow(const struct clp_epe *e, int32_t pid, bool *said)
{
    uint64_t since_ns = clp_epe_waits_since_ns(e);
    if (*said || since_ns == 0 || clp_clock_monotonic_ns() < since_ns + CLP_STREAM_SLOW_NS)
        return;
    *said = true;
    fprintf(stderr, "clrpulse: process %d is slow to answer; waiting up to %u s\n", pid,
            (unsigned)(CLP_STREAM_OPEN_NS / CLP_NSEC_PER_SEC));
}

static enum clp_epe_state run(struct clp_epe *e, int32_t pid, int stop_fd, uint64_t duration_ns)
{
    bool interrupted = false, said = false;
    enum clp_epe_state s = CLP_EPE_STARTING;
    while (s != CLP_EPE_DONE && s != CLP_EPE_FAILED) {
        s = step(e, stop_fd, &interrupted);
        uint64_t start_ns = clp_epe_start_ns(e);
        say_slow(e, pid, &said);
        if (interrupted && s == CLP_EPE_STARTING)
            return s;
        if (s == CLP_EPE_LIVE &&
            (interrupted || clp_clock_monotonic_ns() - start_ns >= duration_ns))
            clp_epe_end(e);
    }
    return s;
}

int clp_record_eventpipe(const struct clp_dotnet *found, int stop_fd, uint32_t types,
                         enum clp_span_mode spans, uint64_t duration_ns, struct clp_profile **ret,
                         struct clp_fault *f)
{
    struct clp_epe *e = NULL;
    struct clp_epe_window window;
    struct clp_epe_config config = {
        .burst_ns = CLP_EPE_BURST_NS,
        .period_ns = CLP_EPE_PERIOD_NS,
        .spans = spans,
        .types = types,
        .journal = open_journal(),
    };
    (void)!clp_symbols_new(NULL, &config.symbols); /* without them some names are missing */
    int r = clp_epe_new(found, &config, &e, f);
    enum clp_epe_state s = r == 0 ? run(e, found->pid, stop_fd, duration_ns) : CLP_EPE_FAILED;
    if (r == 0 && s == CLP_EPE_STARTING)
        r = clp_fault_set(f, -EINTR, "interrupted before the recording began");
    if (r == 0 && s == CLP_EPE_FAILED) {
        *f = *clp_epe_fault(e);
        r = f->error;
    }
    if (r == 0 && clp_epe_window(e, &window) < 0)
        r = clp_fault_set(f, -ENOMEM, "out of memory");
    if (r == 0)
        *ret = window.profile;
    clp_epe_free(e);
    clp_symbols_free(config.symbols);
    clp_journal_close(config.journal);
    return r;
}
