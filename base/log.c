#include "base/log.h"
#include "base/clock.h"
#include "base/core/text.h"
#include "base/strbuf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* Each byte of a message becomes at most 6 in JSON; time and level take less than 128. */
#define LINE_CEILING_BYTES (CLP_LOG_LINE_BYTES * 6 + 128)

static const char *const level_names[] = {"error", "warning", "info", "debug"};

static enum clp_log_level max_level = CLP_LOG_INFO;
static bool as_json, to_journal;
static int log_fd = STDERR_FILENO;

/* JOURNAL_STREAM is "device:inode" of the journal's end; a descriptor that was redirected since is
 * another one. */
static bool is_journal(int fd)
{
    struct stat st;
    unsigned long long device, inode;
    const char *stream = getenv("JOURNAL_STREAM");
    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(fd, &st) == 0 &&
           st.st_dev == device && st.st_ino == inode;
}

void clp_log_setup(enum clp_log_level level, bool json, int fd)
{
    max_level = level;
    as_json = json;
    log_fd = fd;
    to_journal = is_journal(fd);
}

int clp_log_parse_level(const char *name, enum clp_log_level *ret)
{
    if (strcasecmp(name, "warn") == 0)
        name = "warning";
    for (size_t i = 0; i < CLP_ARRAY_LEN(level_names); i++)
        if (strcasecmp(name, level_names[i]) == 0) {
            *ret = (enum clp_log_level)i;
            return 0;
        }
    return -EINVAL;
}

bool clp_log_enabled(enum clp_log_level level)
{
    return level <= max_level;
}

/* Whether this site may write now; how many lines were held back before goes to *ret_held_back. */
static bool may_write(struct clp_log_site *site, uint32_t *ret_held_back)
{
    uint64_t now = clp_clock_monotonic_ns();
    uint64_t start = atomic_load_explicit(&site->window_start_ns, memory_order_relaxed);
    *ret_held_back = 0;
    if ((start == 0 || now - start >= CLP_LOG_WINDOW_NS) &&
        atomic_compare_exchange_strong(&site->window_start_ns, &start, now)) {
        atomic_store_explicit(&site->lines, 0, memory_order_relaxed);
        *ret_held_back = atomic_exchange(&site->suppressed, 0);
    }
    if (atomic_fetch_add_explicit(&site->lines, 1, memory_order_relaxed) < CLP_LOG_BURST)
        return true;
    atomic_fetch_add_explicit(&site->suppressed, 1, memory_order_relaxed);
    return false;
}

/* One line of text without control characters: a name from a target stays inside its line. */
static void add_printable(struct clp_strbuf *b, const char *s, size_t len)
{
    char clean[CLP_LOG_LINE_BYTES * 3];
    struct clp_text t = clp_text_in(clean, sizeof(clean));
    clp_text_utf8_clean(&t, s, len);
    for (size_t i = 0; i < t.len; i++) {
        unsigned char c = (unsigned char)clean[i];
        if (c < 0x20 || c == 0x7f)
            clp_strbuf_printf(b, "\\x%02x", c);
        else
            clp_strbuf_char(b, clean[i]);
    }
}

static void compose(struct clp_strbuf *b, enum clp_log_level level, const char *message, size_t len)
{
    static const char priorities[] = {'3', '4', '6', '7'}; /* syslog(3) */
    char when[CLP_CLOCK_UTC_BYTES];
    (void)clp_clock_utc(clp_clock_realtime_ns(), when);
    if (to_journal)
        clp_strbuf_printf(b, "<%c>", priorities[level]);
    if (as_json) {
        clp_strbuf_printf(b, "{\"time\":\"%s\",\"level\":\"%s\",\"message\":", when,
                          level_names[level]);
        clp_strbuf_json(b, message, len);
        clp_strbuf_str(b, "}\n");
    } else {
        if (!to_journal)
            clp_strbuf_printf(b, "%s %s ", when, level_names[level]);
        add_printable(b, message, len);
        clp_strbuf_char(b, '\n');
    }
}

static void write_line(const char *line, size_t len)
{
    /* One write a line, so that lines of several threads do not mix. Nobody to tell if it fails. */
    while (write(log_fd, line, len) < 0 && errno == EINTR)
        ;
}

void clp_log_write(struct clp_log_site *site, enum clp_log_level level, const char *fmt, ...)
{
    int saved = errno;
    uint32_t held_back;
    if (!may_write(site, &held_back)) {
        errno = saved;
        return;
    }
    char message[CLP_LOG_LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    errno = saved; /* for %m */
    int n = vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    size_t len = n < 0 ? 0 : CLP_MIN((size_t)n, sizeof(message) - 1);
    if (held_back && len < sizeof(message) - 1) {
        n = snprintf(message + len, sizeof(message) - len, " (%u such lines held back before)",
                     held_back);
        len = n < 0 ? len : CLP_MIN(len + (size_t)n, sizeof(message) - 1);
    }
    struct clp_strbuf line;
    clp_strbuf_init(&line, LINE_CEILING_BYTES);
    compose(&line, level, message, len);
    if (clp_strbuf_error(&line) == 0)
        write_line(line.buf, line.len);
    else
        write_line("clrpulse: no memory for a log line\n", 35);
    clp_strbuf_done(&line);
    errno = saved;
}
