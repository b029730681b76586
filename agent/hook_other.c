/* Another build of the hook's assembly in the process. */
#include "agent/as_user.h"
#include "agent/hook.h"
#include "base/cleanup.h"
#include "base/core/proctext.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAPS_MAX_BYTES (64u << 20)
#define ENVIRON_MAX_BYTES (4u << 20)

struct search {
    const struct clp_dotnet *target;
    bool loaded; /* the very file that is to be brought */
    char *found; /* the path of another build */
    size_t cap;
};

/* 0, or what clp_hook_find_other answers. */
typedef int look(struct search *s, const char *path, size_t len);

/* As the target's user: 0 for the file that belongs to this program. `text` takes the path. */
static int check_file(const struct search *s, const char *path, size_t len, char *text)
{
    if (len >= PATH_MAX)
        return -ENAMETOOLONG;
    memcpy(text, path, len);
    text[len] = '\0';
    CLP_CLEANUP(clp_cleanup_fd)
    int fd = clp_file_open_in(s->target->root_fd, text, O_RDONLY | O_NONBLOCK);
    return fd < 0 ? fd : clp_hook_check_bytes(fd);
}

static int note(struct search *s, const char *path, int why)
{
    if (why < 0)
        snprintf(s->found, s->cap, "%s", path);
    return why;
}

/* One that cannot be read counts as another build: it may have been replaced or deleted since, and
 * what a mistake would cost is the process. */
static int look_at_loaded(struct search *s, const char *path, size_t len)
{
    char text[PATH_MAX] = "";
    int r = check_file(s, path, len, text);
    s->loaded |= r == 0;
    return note(s, text, r);
}

/* One that may be loaded. What lies behind a symlink is not known, so it counts as another. */
static int look_at(struct search *s, const char *path, size_t len)
{
    char text[PATH_MAX] = "";
    int r = check_file(s, path, len, text);
    return r == -EBADMSG || r == -ELOOP ? note(s, text, r) : 0;
}

static int look_beside(struct search *s, const char *path, size_t len)
{
    char text[PATH_MAX];
    const char *slash = memrchr(path, '/', len);
    int n =
        slash ? snprintf(text, sizeof(text), "%.*s/" CLP_HOOK_NAME, (int)(slash - path), path) : -1;
    return n > 0 && (size_t)n < sizeof(text) ? look_at(s, text, (size_t)n) : 0;
}

static bool is_named(const char *path, size_t len, const char *name)
{
    size_t n = strlen(name);
    return n > 0 && len > n && path[len - n - 1] == '/' && memcmp(path + len - n, name, n) == 0;
}

/* At each mapping of a file of this name. */
static int look_in_maps(struct search *s, const char *maps, size_t len, const char *name,
                        look *look_at_it)
{
    int r = 0;
    for (const char *at = maps, *end = maps + len; r == 0 && at < end;) {
        struct clp_map_entry e;
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((newline ? newline : end) - at);
        if (clp_proctext_map_line(at, n, &e) == 0 && e.path_len > 0) {
            size_t path_len = clp_proctext_map_path_len(&e);
            if (is_named(e.path, path_len, name))
                r = look_at_it(s, e.path, path_len);
        }
        at += n + 1;
    }
    return r;
}

/* Start-up hooks that run before ours, also when none of them is loaded yet. */
static int look_in_environ(struct search *s, const char *block, size_t len)
{
    int r = 0;
    size_t all = 0;
    const char *path = clp_proctext_env(block, len, "DOTNET_STARTUP_HOOKS", &all);
    for (const char *end = path ? path + all : path; r == 0 && path < end;) {
        const char *colon = memchr(path, ':', (size_t)(end - path));
        size_t n = (size_t)((colon ? colon : end) - path);
        if (is_named(path, n, CLP_HOOK_NAME))
            r = look_at(s, path, n);
        path += n + 1;
    }
    return r;
}

/* What lies beside the program the runtime knows without having loaded it; none of that matters
 * once it has loaded ours. */
static int look_everywhere(struct search *s, const char *maps, size_t maps_len,
                           const char *environment, size_t environ_len)
{
    char link[64], exe[PATH_MAX], entry[sizeof(s->target->info.entry_assembly) + 4];
    snprintf(link, sizeof(link), "/proc/%d/exe", s->target->pid);
    ssize_t exe_len = readlink(link, exe, sizeof(exe));
    snprintf(entry, sizeof(entry), "%s.dll", s->target->info.entry_assembly);
    int r = maps ? look_in_maps(s, maps, maps_len, CLP_HOOK_NAME, look_at_loaded) : 0;
    if (r < 0 || s->loaded)
        return r;
    if (maps)
        r = look_in_maps(s, maps, maps_len, entry, look_beside);
    if (r == 0 && environment)
        r = look_in_environ(s, environment, environ_len);
    if (r == 0 && exe_len > 0)
        r = look_beside(s, exe, (size_t)exe_len);
    return r;
}

int clp_hook_find_other(const struct clp_dotnet *t, char *ret, size_t cap)
{
    struct search s = {.target = t, .found = ret, .cap = cap};
    struct clp_as_user user;
    size_t maps_len = 0, environ_len = 0;
    CLP_CLEANUP(clp_cleanup_free)
    char *maps = clp_file_read_proc(t->pid, "maps", MAPS_MAX_BYTES, &maps_len);
    CLP_CLEANUP(clp_cleanup_free)
    char *environment = clp_file_read_proc(t->pid, "environ", ENVIRON_MAX_BYTES, &environ_len);
    if (clp_as_user_begin(&user, t->uid, t->gid) < 0)
        return 0; /* nothing can be sent then */
    int r = look_everywhere(&s, maps, maps_len, environment, environ_len);
    clp_as_user_end(&user);
    return r;
}
