/* clrpulse events show: a line for each event of a file or of a running process.
 *
 *     2026-11-29T20:19:07.123456Z  1234 Microsoft-Windows-DotNETRuntime/ExceptionThrown Type="..."
 *
 * Events come in the order of their time; a live stream is shown about 0.2 s late. */
#include "agent/cli/events.h"

#include "base/clock.h"
#include "base/strbuf.h"
#include "sampler/nettrace/payload.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES (1u << 20)
/* The runtime's exceptions, contention and GCs; what .NET's own sources say about HTTP, sockets,
 * names, TLS and DNS; counters once a second. */
#define DEFAULT_PROVIDERS                                                                          \
    "Microsoft-Windows-DotNETRuntime:0xc001:4,System.Net.Http::4,System.Net.Sockets::4,"           \
    "System.Net.NameResolution::4,System.Net.Security::4,"                                         \
    "System.Runtime::4:EventCounterIntervalSec=1"

struct show {
    struct clp_nettrace *reader;
    struct clp_strbuf line;
    bool json;
};

/* Microseconds; the stream's own start is known to a millisecond. */
static void put_time(struct show *s, uint64_t ticks)
{
    char text[CLP_CLOCK_UTC_BYTES];
    uint64_t ns = clp_nettrace_unix_ns(s->reader, ticks);
    clp_clock_utc(ns, text);
    text[strcspn(text, "Z")] = '\0';
    clp_strbuf_printf(&s->line, "%s%03uZ", text, (unsigned)(ns / CLP_NSEC_PER_USEC % 1000));
}

static bool has_activity(const uint8_t *guid)
{
    static const uint8_t none[CLP_NETTRACE_GUID_BYTES];
    return memcmp(guid, none, sizeof(none)) != 0;
}

static void put_hex(struct clp_strbuf *out, const uint8_t *at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        clp_strbuf_printf(out, "%02x", at[i]);
}

static void put_json(struct show *s, const struct clp_nettrace_event *e, uint32_t pointer_bytes)
{
    struct clp_strbuf *out = &s->line;
    clp_strbuf_str(out, "{\"time\":\"");
    put_time(s, e->ticks);
    clp_strbuf_printf(out, "\",\"thread\":%" PRIu64 ",\"provider\":", e->thread_id);
    clp_strbuf_json(out, e->meta->provider, strlen(e->meta->provider));
    clp_strbuf_printf(out, ",\"id\":%u,\"version\":%u,\"name\":", e->meta->event_id,
                      e->meta->version);
    clp_strbuf_json(out, e->meta->name, strlen(e->meta->name));
    if (has_activity(e->activity)) {
        clp_strbuf_str(out, ",\"activity\":\"");
        put_hex(out, e->activity, CLP_NETTRACE_GUID_BYTES);
        clp_strbuf_char(out, '"');
    }
    clp_strbuf_str(out, ",\"payload\":");
    clp_nettrace_print_payload(e, pointer_bytes, true, out);
    clp_strbuf_str(out, ",\"stack\":[");
    for (uint32_t i = 0; i < e->stack_len; i++)
        clp_strbuf_printf(out, "%s\"0x%" PRIx64 "\"", i ? "," : "", e->stack[i]);
    clp_strbuf_str(out, "]}");
}

static void put_text(struct show *s, const struct clp_nettrace_event *e, uint32_t pointer_bytes)
{
    struct clp_strbuf *out = &s->line;
    put_time(s, e->ticks);
    clp_strbuf_printf(out, " %6" PRIu64 " %s/", e->thread_id, e->meta->provider);
    if (*e->meta->name)
        clp_strbuf_str(out, e->meta->name);
    else
        clp_strbuf_printf(out, "%u", e->meta->event_id);
    clp_strbuf_char(out, ' ');
    clp_nettrace_print_payload(e, pointer_bytes, false, out);
    if (e->stack_len > 0)
        clp_strbuf_printf(out, " (stack of %u)", e->stack_len);
}

static void show_event(void *context, const struct clp_nettrace_event *e)
{
    struct show *s = context;
    uint32_t pointer_bytes = clp_nettrace_info(s->reader)->pointer_bytes;
    clp_strbuf_reset(&s->line);
    if (s->json)
        put_json(s, e, pointer_bytes);
    else
        put_text(s, e, pointer_bytes);
    clp_strbuf_char(&s->line, '\n');
    if (clp_strbuf_error(&s->line) == 0)
        (void)fwrite(s->line.buf, 1, s->line.len, stdout);
}

static int read_process(struct show *s, const struct clp_cli *cli, struct clp_fault *f)
{
    static uint8_t chunk[CLP_EVENTS_CHUNK_BYTES];
    struct clp_live_events l;
    int64_t n = 0;
    int r = clp_live_open(&l, cli, 0, DEFAULT_PROVIDERS, f);
    while (r == 0 && !ferror(stdout) && (n = clp_live_read(&l, chunk, sizeof(chunk))) > 0) {
        r = clp_nettrace_feed(s->reader, chunk, (size_t)n);
        (void)fflush(stdout);
        if (r < 0)
            (void)clp_fault_set(f, -EIO, "the stream of process %d cannot be read: %s",
                                l.process.pid, clp_nettrace_problem(s->reader));
    }
    if (r == 0 && n < 0)
        r = clp_fault_set(f, (int)n, "the stream of process %d broke: %s", l.process.pid,
                          strerror((int)-n));
    clp_live_done(&l);
    clp_nettrace_finish(s->reader);
    return r;
}

static void tell(const struct show *s)
{
    const struct clp_nettrace_counts *c = clp_nettrace_counts(s->reader);
    if (c->lost > 0)
        fprintf(stderr, "clrpulse: %llu events are missing: the process dropped them\n",
                (unsigned long long)c->lost);
    if (!clp_nettrace_is_complete(s->reader))
        fprintf(stderr, "clrpulse: the stream is partial: it was cut, or its process killed\n");
}

int clp_events_show(const struct clp_cli *cli)
{
    struct clp_fault f = {0};
    struct show s = {.json = cli->events_json};
    struct clp_nettrace_config config = {.event = show_event, .context = &s};
    bool file = cli->word_count == 2;
    if (file == (cli->events_pid != 0)) {
        fprintf(stderr, "clrpulse: events show needs a file or a process: "
                        "`clrpulse events show FILE.nettrace` or -p PID\n");
        return CLP_EXIT_USE;
    }
    if (clp_nettrace_new(&config, &s.reader) < 0)
        return CLP_EXIT_FAILED;
    clp_strbuf_init(&s.line, LINE_MAX_BYTES);
    int r = file ? clp_events_read_file(s.reader, cli->words[1], &f) : read_process(&s, cli, &f);
    (void)fflush(stdout);
    if (r == 0)
        tell(&s);
    clp_strbuf_done(&s.line);
    clp_nettrace_free(s.reader);
    if (f.error == -EINVAL)
        return (void)clp_exit_fault(&f), CLP_EXIT_USE;
    return r < 0 ? clp_exit_fault(&f) : CLP_EXIT_DONE;
}
