/* clrpulse events: record, show and replay, and the live session that the first two read. */
#include "agent/cli/events.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WAIT_MS 100

int clp_command_events(const struct clp_cli *cli)
{
    const char *word = cli->word_count > 0 ? cli->words[0] : "";
    if (strcmp(word, "record") == 0)
        return clp_events_record(cli);
    if (strcmp(word, "show") == 0)
        return clp_events_show(cli);
    if (strcmp(word, "replay") == 0)
        return clp_events_replay(cli);
    if (*word)
        clp_print_sentence("events cannot '%.40s'; it can record, show and replay", word);
    else
        fprintf(stderr, "clrpulse: events needs to be told what to do: record, show or replay; see "
                        "`clrpulse events --help`\n");
    return CLP_EXIT_USE;
}

/* ---- a live session ------------------------------------------------------------------------ */

/* Without a journal all works, except that a kill -9 leaves a session until its next event. */
static struct clp_journal *open_journal(void)
{
    char folder[256];
    struct clp_journal *j = NULL;
    if (clp_journal_user_folder(folder, sizeof(folder)) < 0 || clp_journal_open(folder, &j) < 0)
        return NULL;
    (void)!clp_journal_recover(j);
    return j;
}

static int refused(const struct clp_live_events *l, struct clp_fault *f)
{
    const char *why = clp_hresult_text(l->stream.hresult);
    if (why)
        return clp_fault_set(f, CLP_FAULT_REFUSED, "the runtime of process %d refused: %s",
                             l->process.pid, why);
    return clp_fault_set(f, CLP_FAULT_REFUSED, "the runtime of process %d refused (0x%08x)",
                         l->process.pid, l->stream.hresult);
}

static void let_grow_up(const struct clp_live_events *l)
{
    struct pollfd stop = {.fd = l->stop_fd, .events = POLLIN};
    uint64_t age_ns = clp_dotnet_age_ns(l->process.start_ticks);
    if (l->process.info.major == 8 && age_ns < CLP_DOTNET_GROWN_UP_NS)
        (void)poll(&stop, 1, (int)((CLP_DOTNET_GROWN_UP_NS - age_ns) / CLP_NSEC_PER_MSEC));
}

/* As long as it takes, up to CLP_STREAM_OPEN_NS; people hear that it takes long, and may end it. */
static int open_patiently(struct clp_live_events *l, const struct clp_ipc_collect *c)
{
    uint64_t start_ns = clp_clock_monotonic_ns(), slow_ns = start_ns + CLP_STREAM_SLOW_NS;
    int r = clp_stream_open(&l->stream, c, start_ns);
    while (r == 0 || r == -EAGAIN) {
        uint64_t now_ns = clp_clock_monotonic_ns();
        r = clp_stream_opened(&l->stream, now_ns);
        if (r != -EAGAIN)
            return r;
        if (now_ns > slow_ns) {
            slow_ns = UINT64_MAX;
            fprintf(stderr, "clrpulse: process %d is slow to answer; waiting up to %u s\n",
                    l->process.pid, (unsigned)(CLP_STREAM_OPEN_NS / CLP_NSEC_PER_SEC));
        }
        struct pollfd fds[1 + CLP_STREAM_FDS] = {{.fd = l->stop_fd, .events = POLLIN}};
        (void)poll(fds, 1 + clp_stream_fds(&l->stream, fds + 1), WAIT_MS);
        if (fds[0].revents)
            return -EINTR;
    }
    return r;
}

static int open_stream(struct clp_live_events *l, const struct clp_spec *spec,
                       uint64_t rundown_keywords, struct clp_fault *f)
{
    struct clp_stream_port port = clp_stream_port_of(&l->process);
    struct clp_ipc_collect collect = {
        .buffer_mb = CLP_EVENTS_BUFFER_MB,
        .rundown_keywords = rundown_keywords,
        .stacks = true,
        .providers = spec->providers,
        .provider_count = spec->count,
    };
    clp_stream_init(&l->stream, &port);
    let_grow_up(l);
    int r = open_patiently(l, &collect);
    if (r == -EREMOTEIO)
        return refused(l, f);
    if (r == -EINVAL || r == -EMSGSIZE)
        return clp_fault_set(f, r, "the list of providers is too long, or is no UTF-8");
    if (r == -ETIMEDOUT)
        return clp_fault_set(f, r,
                             "process %d has not opened a session within %u s: it is stopped or "
                             "has no processor, or another tool holds its diagnostics port",
                             l->process.pid, (unsigned)(CLP_STREAM_OPEN_NS / CLP_NSEC_PER_SEC));
    if (r < 0)
        return clp_fault_set(f, r, "cannot open a session with process %d: %s", l->process.pid,
                             strerror(-r));
    (void)!clp_journal_add(l->journal, l->process.pid, l->process.start_ticks, l->stream.id);
    return 0;
}

int clp_live_open(struct clp_live_events *l, const struct clp_cli *cli, uint64_t rundown_keywords,
                  const char *default_providers, struct clp_fault *f)
{
    struct clp_spec *spec = malloc(sizeof(*spec)); /* points into itself: it must not move */
    const char *list = cli->events_providers ? cli->events_providers : default_providers;
    *l = (struct clp_live_events){
        .stop_fd = -1,
        .process = {.root_fd = -1, .temp_fd = -1},
        .stream = {.fd = -1, .call = {.fd = -1}},
    };
    int r = spec ? clp_spec_parse(list, spec, f) : clp_fault_set(f, -ENOMEM, "out of memory");
    if (r == 0) {
        l->stop_fd = clp_stop_signals();
        r = l->stop_fd < 0 ? clp_fault_set(f, l->stop_fd, "cannot set up signals") : 0;
    }
    if (r == 0)
        r = clp_find_process(cli->events_pid, l->stop_fd, &l->process, f);
    if (r == 0) {
        l->journal = open_journal();
        r = open_stream(l, spec, rundown_keywords, f);
    }
    if (r == 0 && cli->events_duration_ns)
        l->until_ns = clp_clock_monotonic_ns() + cli->events_duration_ns;
    free(spec);
    return r;
}

static int wait_ms(const struct clp_live_events *l, uint64_t now_ns)
{
    if (!l->until_ns || l->interrupted)
        return WAIT_MS;
    uint64_t left_ms = l->until_ns > now_ns ? (l->until_ns - now_ns) / CLP_NSEC_PER_MSEC + 1 : 0;
    return (int)CLP_MIN(left_ms, (uint64_t)WAIT_MS);
}

static void look_around(struct clp_live_events *l)
{
    struct pollfd fds[1 + CLP_STREAM_FDS] = {
        {.fd = l->interrupted ? -1 : l->stop_fd, .events = POLLIN}};
    uint64_t now_ns = clp_clock_monotonic_ns();
    (void)poll(fds, 1 + clp_stream_fds(&l->stream, fds + 1), wait_ms(l, now_ns));
    now_ns = clp_clock_monotonic_ns();
    if (!l->interrupted && (fds[0].revents || (l->until_ns && now_ns >= l->until_ns))) {
        l->interrupted = true;
        clp_stream_stop(&l->stream, now_ns);
    }
    clp_stream_step(&l->stream, now_ns);
}

int64_t clp_live_read(struct clp_live_events *l, void *buf, size_t cap)
{
    for (;;) {
        look_around(l);
        int64_t n = clp_stream_read(&l->stream, buf, cap);
        if (n != -EAGAIN)
            return n;
    }
}

void clp_live_done(struct clp_live_events *l)
{
    uint8_t rest[4096];
    uint64_t now_ns = clp_clock_monotonic_ns();
    clp_stream_stop(&l->stream, now_ns);
    while (l->stream.state == CLP_STREAM_STOPPING) { /* after an error of ours: drain */
        look_around(l);
        while (clp_stream_read(&l->stream, rest, sizeof(rest)) > 0)
            ;
    }
    clp_stream_close(&l->stream);
    (void)!clp_journal_remove(l->journal, l->process.pid, l->process.start_ticks, l->stream.id);
    l->journal = clp_journal_close(l->journal);
    if (l->process.root_fd >= 0 || l->process.temp_fd >= 0)
        clp_dotnet_done(&l->process);
    clp_cleanup_fd(&l->stop_fd);
}

/* ---- a file -------------------------------------------------------------------------------- */

int clp_events_read_file(struct clp_nettrace *reader, const char *path, struct clp_fault *f)
{
    static uint8_t chunk[CLP_EVENTS_CHUNK_BYTES];
    CLP_CLEANUP(clp_cleanup_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = 0;
    int r = 0;
    if (fd < 0)
        return clp_fault_set(f, -EIO, "cannot read %s: %s", path, strerror(errno));
    while (r == 0 && (n = read(fd, chunk, sizeof(chunk))) > 0)
        r = clp_nettrace_feed(reader, chunk, (size_t)n);
    clp_nettrace_finish(reader);
    if (n < 0)
        return clp_fault_set(f, -EIO, "cannot read %s: %s", path, strerror(errno));
    if (r < 0)
        return clp_fault_set(f, -EIO, "%s is no .nettrace stream that can be read: %s", path,
                             clp_nettrace_problem(reader));
    return 0;
}
