/* Log lines on stderr: text for people, or one JSON object a line for machines.
 *
 *     text   2026-11-29T20:19:07.123Z warning cannot read /proc/17/maps: Permission denied
 *     json   {"time":"2026-11-29T20:19:07.123Z","level":"warning","message":"..."}
 *
 * Where the descriptor is the systemd journal's (JOURNAL_STREAM), which has its own time and
 * levels, a line begins with its level as sd-daemon(3) writes it, "<4>", and text leaves out both.
 *
 * Each place in the code may write CLP_LOG_BURST lines in CLP_LOG_WINDOW_NS; the rest are counted
 * and told with the first line of the next window. Library code (everything below agent/) logs only
 * at debug level: errors are returned, and the one who decides says so. Thread-safe; not
 * signal-safe. errno is kept. Text from outside is escaped: a target cannot forge lines or send
 * terminal codes. */
#ifndef CLP_BASE_LOG_H
#define CLP_BASE_LOG_H

#include "base/core/core.h"

#include <stdatomic.h>
#include <stdbool.h>

enum clp_log_level {
    CLP_LOG_ERROR,
    CLP_LOG_WARNING,
    CLP_LOG_INFO,
    CLP_LOG_DEBUG,
};

#define CLP_LOG_BURST 10u
#define CLP_LOG_WINDOW_NS (60 * CLP_NSEC_PER_SEC)
#define CLP_LOG_LINE_BYTES 2048u /* a longer message is cut */

/* Before threads start; the default is info, text, descriptor 2. */
void clp_log_setup(enum clp_log_level level, bool json, int fd);
/* "error", "warning" (also "warn"), "info", "debug". 0 or -EINVAL. */
int clp_log_parse_level(const char *name, enum clp_log_level *ret) CLP_MUST_USE;
bool clp_log_enabled(enum clp_log_level level);

/* One per place in the code, static, zero at first. */
struct clp_log_site {
    _Atomic uint64_t window_start_ns;
    _Atomic uint32_t lines;
    _Atomic uint32_t suppressed;
};

void clp_log_write(struct clp_log_site *site, enum clp_log_level level, const char *fmt, ...)
    CLP_PRINTF(3, 4);

#define CLP_LOG(level, ...)                                                                        \
    do {                                                                                           \
        static struct clp_log_site clp_log_site_;                                                  \
        if (clp_log_enabled(level))                                                                \
            clp_log_write(&clp_log_site_, (level), __VA_ARGS__);                                   \
    } while (0)

#define clp_log_error(...) CLP_LOG(CLP_LOG_ERROR, __VA_ARGS__)
#define clp_log_warning(...) CLP_LOG(CLP_LOG_WARNING, __VA_ARGS__)
#define clp_log_info(...) CLP_LOG(CLP_LOG_INFO, __VA_ARGS__)
#define clp_log_debug(...) CLP_LOG(CLP_LOG_DEBUG, __VA_ARGS__)

#endif
