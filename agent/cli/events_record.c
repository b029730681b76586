/* clrpulse events record: the runtime's stream to a file, as it comes. */
#include "agent/cli/events.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RUNDOWN_KEYWORDS 0x80020139u /* methods, modules, IL maps: what dotnet-trace asks for */

struct sink {
    struct clp_nettrace *reader; /* counts what passes by */
    int fd;
    uint64_t bytes;
};

static void ignore(void *context, const struct clp_nettrace_event *e)
{
    (void)context;
    (void)e;
}

static int open_file(const struct clp_cli *cli, char *path, size_t cap, struct clp_fault *f)
{
    char stamp[CLP_CLOCK_UTC_BYTES];
    int n = cli->events_output ? snprintf(path, cap, "%s", cli->events_output)
                               : snprintf(path, cap, "clrpulse-%d-%s.nettrace", cli->events_pid,
                                          clp_clock_utc_compact(clp_clock_realtime_ns(), stamp));
    if (n < 0 || (size_t)n >= cap)
        return clp_fault_set(f, -ENAMETOOLONG, "the path of the file is too long");
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return clp_fault_set(f, -EIO, "cannot write %s: %s", path, strerror(errno));
    return fd;
}

static int copy(struct clp_live_events *l, struct sink *s, const char *path, struct clp_fault *f)
{
    static uint8_t chunk[CLP_EVENTS_CHUNK_BYTES];
    for (;;) {
        int64_t n = clp_live_read(l, chunk, sizeof(chunk));
        if (n == 0)
            return 0;
        if (n < 0)
            return clp_fault_set(f, (int)n, "the stream of process %d broke: %s", l->process.pid,
                                 strerror((int)-n));
        int r = clp_file_write_fd(s->fd, chunk, (size_t)n);
        if (r < 0)
            return clp_fault_set(f, -EIO, "cannot write %s: %s", path, strerror(-r));
        s->bytes += (uint64_t)n;
        (void)!clp_nettrace_feed(s->reader, chunk, (size_t)n);
    }
}

static void tell(const struct clp_live_events *l, const struct sink *s, const char *path)
{
    const struct clp_nettrace_counts *c = clp_nettrace_counts(s->reader);
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "wrote %s: %llu events, %llu bytes\n", path, (unsigned long long)c->events,
                (unsigned long long)s->bytes);
    if (c->lost > 0)
        fprintf(stderr,
                "clrpulse: the process dropped %llu events, because its buffer was full; ask for "
                "fewer of them\n",
                (unsigned long long)c->lost);
    if (l->stream.gave_up)
        fprintf(stderr,
                "clrpulse: process %d has not ended the session within %u s: it is stopped or has "
                "no processor; all whole blocks that came are in the file\n",
                l->process.pid, (unsigned)(CLP_STREAM_STOP_NS / CLP_NSEC_PER_SEC));
    else if (!clp_nettrace_is_complete(s->reader))
        fprintf(stderr,
                "clrpulse: the stream is partial: the process ended without closing it; all whole "
                "blocks are in the file\n");
}

int clp_events_record(const struct clp_cli *cli)
{
    char path[4096];
    struct clp_fault f = {0};
    struct clp_live_events l;
    struct sink s = {.fd = -1};
    struct clp_nettrace_config config = {.event = ignore};
    if (cli->events_pid == 0 || !cli->events_providers) {
        fprintf(stderr, "clrpulse: events record needs a process and providers: -p PID --providers "
                        "Microsoft-Windows-DotNETRuntime:0x8000:2\n");
        return CLP_EXIT_USE;
    }
    if (clp_nettrace_new(&config, &s.reader) < 0)
        return CLP_EXIT_FAILED;
    int r = clp_live_open(&l, cli, cli->events_rundown ? RUNDOWN_KEYWORDS : 0, "", &f);
    if (r == 0)
        r = s.fd = open_file(cli, path, sizeof(path), &f);
    if (r >= 0)
        r = copy(&l, &s, path, &f);
    clp_live_done(&l);
    clp_cleanup_fd(&s.fd);
    clp_nettrace_finish(s.reader);
    if (r == 0)
        tell(&l, &s, path);
    clp_nettrace_free(s.reader);
    if (f.error == -EINVAL)
        return (void)clp_exit_fault(&f), CLP_EXIT_USE;
    return r < 0 ? clp_exit_fault(&f) : CLP_EXIT_DONE;
}
