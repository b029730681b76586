/* Every parser of base/core/proctext.h over the same bytes: a target chooses its own command name,
 * its own environment and, through a fake /proc in a container, all the rest. */
#include "base/core/proctext.h"

#include <stdlib.h>
#include <string.h>

static void maps(const char *text, size_t len)
{
    struct clp_map_entry e;
    for (size_t at = 0; at < len;) {
        const char *nl = memchr(text + at, '\n', len - at);
        size_t n = nl ? (size_t)(nl - text) - at : len - at;
        if (clp_proctext_map_line(text + at, n, &e) == 0) {
            if (e.start >= e.end || e.path < text || e.path + e.path_len > text + len)
                abort();
        }
        at += n + 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct clp_proc_stat stat;
    struct clp_proc_status status;
    int64_t nr;
    uint64_t sp, pc;
    size_t n;

    maps(text, size);
    if (clp_proctext_stat(text, size, &stat) == 0)
        if (stat.pid < 0 || stat.ppid < 0 || strnlen(stat.comm, sizeof(stat.comm)) == 64)
            abort();
    if (clp_proctext_status(text, size, &status) == 0 && status.ns_pid < 0)
        abort();
    const char *v = clp_proctext_env(text, size, "TMPDIR", &n);
    if (v && (v < text || v + n >= text + size || v[n] != '\0'))
        abort();
    if (clp_proctext_syscall(text, size, &nr, &sp, &pc) == 0 && nr < -1)
        abort();
    return 0;
}
