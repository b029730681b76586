/* Another build of the hook's assembly in the process. */
#include "agent/as_user.h"
#include "agent/hook.h"
#include "base/cleanup.h"
#include "base/core/proctext.h"
#include "base/file.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAPS_MAX_BYTES (64u << 20)
#define ENVIRON_MAX_BYTES (4u << 20)
#define VARIABLE "DOTNET_STARTUP_HOOKS="

struct search {
    const struct clp_dotnet *target;
    char *found; /* the path of another build, or empty */
    size_t cap;
};

/* `must`: the file is known to be loaded, so one that cannot be read is none of ours. */
static bool look_at(struct search *s, const char *path, size_t len, bool must)
{
    char text[PATH_MAX];
    if (len >= sizeof(text))
        return false;
    memcpy(text, path, len);
    text[len] = '\0';
    CLP_CLEANUP(clp_cleanup_fd)
    int fd = clp_file_open_in(s->target->root_fd, text, O_RDONLY | O_NONBLOCK);
    if (fd < 0 ? !must : clp_hook_check_bytes(fd) == 0)
        return false;
    snprintf(s->found, s->cap, "%s", text);
    return true;
}

static bool look_beside(struct search *s, const char *path, size_t len)
{
    char text[PATH_MAX];
    const char *slash = memrchr(path, '/', len);
    int n =
        slash ? snprintf(text, sizeof(text), "%.*s/" CLP_HOOK_NAME, (int)(slash - path), path) : -1;
    return n > 0 && (size_t)n < sizeof(text) && look_at(s, text, (size_t)n, false);
}

static bool is_named(const char *path, size_t len, const char *name)
{
    size_t n = strlen(name);
    return n > 0 && len > n && path[len - n - 1] == '/' && memcmp(path + len - n, name, n) == 0;
}

/* What is loaded, and what lies beside the entry assembly: the runtime knows that without having
 * loaded it. */
static bool look_in_maps(struct search *s, const char *maps, size_t len)
{
    static const char gone[] = " (deleted)";
    char entry[sizeof(s->target->info.entry_assembly) + 4];
    snprintf(entry, sizeof(entry), "%s.dll", s->target->info.entry_assembly);
    for (const char *at = maps, *end = maps + len; at < end;) {
        struct clp_map_entry e;
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((newline ? newline : end) - at);
        if (clp_proctext_map_line(at, n, &e) == 0 && e.path_len > 0) {
            size_t path_len = e.path_len;
            if (path_len > sizeof(gone) &&
                memcmp(e.path + path_len - (sizeof(gone) - 1), gone, sizeof(gone) - 1) == 0)
                path_len -= sizeof(gone) - 1;
            if (is_named(e.path, path_len, CLP_HOOK_NAME) && look_at(s, e.path, path_len, true))
                return true;
            if (is_named(e.path, path_len, entry) && look_beside(s, e.path, path_len))
                return true;
        }
        at += n + 1;
    }
    return false;
}

/* Start-up hooks that run before ours, also when none of them is loaded yet. */
static bool look_in_environ(struct search *s, const char *block, size_t len)
{
    for (const char *at = block, *end = block + len; at < end;) {
        size_t n = strnlen(at, (size_t)(end - at));
        if (n > sizeof(VARIABLE) && memcmp(at, VARIABLE, sizeof(VARIABLE) - 1) == 0) {
            const char *to = at + n;
            for (const char *path = at + sizeof(VARIABLE) - 1; path < to;) {
                const char *colon = memchr(path, ':', (size_t)(to - path));
                size_t path_len = (size_t)((colon ? colon : to) - path);
                if (is_named(path, path_len, CLP_HOOK_NAME) && look_at(s, path, path_len, false))
                    return true;
                path += path_len + 1;
            }
        }
        at += n + 1;
    }
    return false;
}

bool clp_hook_find_other(const struct clp_dotnet *t, char *ret, size_t cap)
{
    struct search s = {.target = t, .found = ret, .cap = cap};
    struct clp_as_user user;
    char link[64], exe[PATH_MAX];
    size_t maps_len = 0, environ_len = 0;
    CLP_CLEANUP(clp_cleanup_free)
    char *maps = clp_file_read_proc(t->pid, "maps", MAPS_MAX_BYTES, &maps_len);
    CLP_CLEANUP(clp_cleanup_free)
    char *environment = clp_file_read_proc(t->pid, "environ", ENVIRON_MAX_BYTES, &environ_len);
    snprintf(link, sizeof(link), "/proc/%d/exe", t->pid);
    ssize_t exe_len = readlink(link, exe, sizeof(exe));
    if (clp_as_user_begin(&user, t->uid, t->gid) < 0)
        return false; /* nothing can be sent then */
    bool found = (maps && look_in_maps(&s, maps, maps_len)) ||
                 (environment && look_in_environ(&s, environment, environ_len)) ||
                 (exe_len > 0 && look_beside(&s, exe, (size_t)exe_len));
    clp_as_user_end(&user);
    return found;
}
