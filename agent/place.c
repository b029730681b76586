#include "agent/place.h"

#include "agent/as_user.h"
#include "agent/where.h"
#include "base/cleanup.h"
#include "base/core/proctext.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define SOCKET_NAME "s"
#define LIBRARY_NAME "libclrpulse.so"
#define LIBRARY_MAX_BYTES (64u << 20)
#define MAPS_MAX_BYTES (64u << 20)
#define BACKLOG 4
#define NAME_PREFIX "clrpulse-"
#define NAME_LEN (sizeof(NAME_PREFIX) - 1 + 16) /* with 16 hexadecimal digits */

static const struct clp_place_dir no_dir = {.parent_fd = -1, .fd = -1};

/* ---- directories --------------------------------------------------------------------------- */

static int random_name(char name[40])
{
    uint64_t r;
    if (getrandom(&r, sizeof(r), 0) != (ssize_t)sizeof(r))
        return -EIO;
    snprintf(name, 40, NAME_PREFIX "%016llx", (unsigned long long)r);
    return 0;
}

/* Takes `parent_fd` over. As the target's user. */
static int make_dir(struct clp_place_dir *d, int parent_fd, uid_t uid, gid_t gid)
{
    *d = (struct clp_place_dir){.parent_fd = parent_fd, .fd = -1};
    if (!clp_where_may_write(parent_fd, uid, gid))
        return -EACCES;
    int r = random_name(d->name);
    if (r < 0)
        return r;
    if (mkdirat(parent_fd, d->name, 0700) < 0)
        return -errno;
    d->fd = openat(parent_fd, d->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (d->fd >= 0)
        return 0;
    r = -errno;
    (void)unlinkat(parent_fd, d->name, AT_REMOVEDIR);
    return r;
}

static void remove_dir(struct clp_place_dir *d, bool as_user)
{
    if (d->fd >= 0 && as_user) {
        (void)unlinkat(d->fd, SOCKET_NAME, 0);
        (void)unlinkat(d->fd, LIBRARY_NAME, 0);
        (void)unlinkat(d->parent_fd, d->name, AT_REMOVEDIR);
    }
    clp_cleanup_fd(&d->fd);
    clp_cleanup_fd(&d->parent_fd);
    *d = no_dir;
}

/* Ours are named so and live for seconds; an older one is what an agent that was killed has left.
 */
#define LEFT_OVER_SECONDS 60

static bool is_left_over(int parent_fd, const char *name, uid_t uid)
{
    struct stat st;
    size_t prefix = strlen(NAME_PREFIX);
    if (strncmp(name, NAME_PREFIX, prefix) != 0 || strlen(name) != NAME_LEN ||
        strspn(name + prefix, "0123456789abcdef") != NAME_LEN - prefix)
        return false;
    if (fstatat(parent_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
        return false;
    return st.st_uid == uid && (st.st_mode & 07777) == 0700 &&
           time(NULL) - st.st_mtime > LEFT_OVER_SECONDS;
}

static void sweep(int parent_fd, uid_t uid)
{
    CLP_CLEANUP(clp_cleanup_dir) DIR *list = clp_file_list(parent_fd);
    struct dirent *e;
    for (unsigned n = 0; list && n < CLP_PLACE_SWEEP_MOST && (e = readdir(list)); n++) {
        if (!is_left_over(parent_fd, e->d_name, uid))
            continue;
        struct clp_place_dir d = {
            .parent_fd = fcntl(parent_fd, F_DUPFD_CLOEXEC, 0),
            .fd = openat(parent_fd, e->d_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
        memcpy(d.name, e->d_name, NAME_LEN + 1);
        remove_dir(&d, true);
    }
}

/* ---- the meeting place --------------------------------------------------------------------- */

static int listen_in(const struct clp_place_dir *d, int *ret_fd)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/" SOCKET_NAME, d->fd);
    CLP_CLEANUP(clp_cleanup_fd)
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, BACKLOG) < 0)
        return -errno;
    *ret_fd = CLP_TAKE_FD(fd);
    return 0;
}

static int make_meeting_place(struct clp_place *p, const struct clp_dotnet *t,
                              struct clp_fault *fault)
{
    const char *slash = strcmp(t->temp_path, "/") == 0 ? "" : "/";
    int parent = fcntl(t->temp_fd, F_DUPFD_CLOEXEC, 0);
    int r = parent < 0 ? -errno : make_dir(&p->meet, parent, p->uid, p->gid);
    if (r == 0)
        sweep(parent, p->uid);
    if (r == 0) {
        int n = snprintf(p->socket_path, sizeof(p->socket_path), "%s%s%s/" SOCKET_NAME,
                         t->temp_path, slash, p->meet.name);
        r = n < 0 || (size_t)n >= sizeof(p->socket_path) ? -ENAMETOOLONG : 0;
    }
    if (r == 0)
        r = listen_in(&p->meet, &p->listen_fd);
    if (r < 0)
        return clp_fault_set(fault, r,
                             "cannot make a socket for process %d in its temp directory "
                             "%s as uid %u: %s",
                             t->pid, t->temp_path, p->uid, strerror(-r));
    return 0;
}

/* ---- the library --------------------------------------------------------------------------- */

static bool is_library_path(const char *path, size_t len)
{
    size_t n = strlen("/" LIBRARY_NAME);
    return len > n && memcmp(path + len - n, "/" LIBRARY_NAME, n) == 0;
}

/* Another path would load the library a second time beside the first. The dynamic linker compares
 * the text first, so the old path works even when the file has been removed. */
static bool find_mapped(const char *maps, size_t len, char *ret, size_t cap)
{
    for (const char *at = maps, *end = maps + len; at < end;) {
        struct clp_map_entry e;
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t n = newline ? (size_t)(newline - at) : (size_t)(end - at);
        if (clp_proctext_map_line(at, n, &e) == 0) {
            size_t path_len = clp_proctext_map_path_len(&e);
            if (is_library_path(e.path, path_len) && path_len < cap) {
                memcpy(ret, e.path, path_len);
                ret[path_len] = '\0';
                return true;
            }
        }
        at += n + 1;
    }
    return false;
}

/* The kernel writes paths of a foreign mount namespace from that one's own root; the target may
 * live in a chroot below it. */
static void strip_root(int32_t pid, char *path)
{
    char link[64], root[PATH_MAX];
    snprintf(link, sizeof(link), "/proc/%d/root", pid);
    ssize_t n = readlink(link, root, sizeof(root) - 1);
    if (n > 1 && strncmp(path, root, (size_t)n) == 0 && path[n] == '/')
        memmove(path, path + n, strlen(path + n) + 1);
}

static bool is_mapped_already(struct clp_place *p, const struct clp_dotnet *t)
{
    size_t len;
    CLP_CLEANUP(clp_cleanup_free)
    char *maps = clp_file_read_proc(t->pid, "maps", MAPS_MAX_BYTES, &len);
    if (!maps || !find_mapped(maps, len, p->library_path, sizeof(p->library_path)))
        return false;
    strip_root(t->pid, p->library_path);
    return true;
}

/* Read-only is no hindrance to a file that is there. */
static bool is_mounted_noexec(int fd)
{
    struct statvfs fs;
    return fstatvfs(fd, &fs) == 0 && (fs.f_flag & ST_NOEXEC);
}

/* Whether the target finds our own file under the same path, may read it, and may execute it. As
 * the target's user. */
static bool is_visible(const struct clp_dotnet *t, const char *library, int library_fd)
{
    struct stat ours, theirs;
    CLP_CLEANUP(clp_cleanup_fd) int fd = clp_file_open_in(t->root_fd, library, O_RDONLY);
    if (fd < 0 || fstat(fd, &theirs) < 0 || fstat(library_fd, &ours) < 0)
        return false;
    return ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino && !is_mounted_noexec(fd);
}

static int copy_into(const struct clp_place_dir *d, int library_fd)
{
    off_t at = 0;
    ssize_t n = 1;
    CLP_CLEANUP(clp_cleanup_fd)
    int fd =
        openat(d->fd, LIBRARY_NAME, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0500);
    if (fd < 0)
        return -errno;
    while (n > 0 && at <= LIBRARY_MAX_BYTES) {
        n = sendfile(fd, library_fd, &at, 1 << 20);
        if (n < 0 && errno == EINTR)
            n = 1;
    }
    int r = n < 0 ? -errno : n == 0 ? 0 : -EFBIG;
    if (r < 0)
        (void)unlinkat(d->fd, LIBRARY_NAME, 0);
    return r;
}

static int copy_to(struct clp_place *p, const struct clp_place_dir *d, const char *dir_path,
                   int library_fd)
{
    const char *slash = strcmp(dir_path, "/") == 0 ? "" : "/";
    int n = snprintf(p->library_path, sizeof(p->library_path), "%s%s%s/" LIBRARY_NAME, dir_path,
                     slash, d->name);
    if (n < 0 || (size_t)n >= sizeof(p->library_path))
        return -ENAMETOOLONG;
    int r = copy_into(d, library_fd);
    p->copied = r == 0;
    return r;
}

struct elsewhere {
    struct clp_place *p;
    int library_fd;
};

static int copy_elsewhere(void *context, int dir_fd, const char *path)
{
    const struct elsewhere *e = context;
    int parent = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
    int r = parent < 0 ? -errno : make_dir(&e->p->copy, parent, e->p->uid, e->p->gid);
    if (r == 0)
        r = copy_to(e->p, &e->p->copy, path, e->library_fd);
    if (r < 0)
        remove_dir(&e->p->copy, true);
    return r;
}

/* What cannot be loaded is no reason to give up: there is an engine that loads nothing. */
static int place_library(struct clp_place *p, const struct clp_dotnet *t, const char *library,
                         int library_fd, struct clp_fault *fault)
{
    if (is_visible(t, library, library_fd)) {
        snprintf(p->library_path, sizeof(p->library_path), "%s", library);
        return 0;
    }
    bool noexec = clp_where_noexec(p->meet.fd);
    int r = noexec ? -EACCES : copy_to(p, &p->meet, t->temp_path, library_fd);
    if (r == 0 || clp_where(t, copy_elsewhere, &(struct elsewhere){p, library_fd}) == 0)
        return 0;
    if (noexec)
        return clp_fault_set(fault, CLP_FAULT_REFUSED,
                             "process %d cannot execute the library: %s and every other "
                             "directory that uid %u may write are mounted noexec; mount the "
                             "library's directory into its container",
                             t->pid, t->temp_path, p->uid);
    return clp_fault_set(fault, CLP_FAULT_REFUSED,
                         "cannot copy the library into %s of process %d, nor anywhere else that "
                         "uid %u may write: %s",
                         t->temp_path, t->pid, p->uid, strerror(-r));
}

/* ---- a look only --------------------------------------------------------------------------- */

static int keep_path(void *context, int dir_fd, const char *path)
{
    (void)dir_fd;
    snprintf(context, CLP_PLACE_PATH_BYTES, "%s", path);
    return 0;
}

int clp_place_look(const struct clp_dotnet *t, const char *library,
                   char ret_path[CLP_PLACE_PATH_BYTES])
{
    struct clp_as_user user;
    CLP_CLEANUP(clp_cleanup_fd) int library_fd = open(library, O_RDONLY | O_CLOEXEC);
    if (library_fd < 0)
        return -errno;
    if (t->temp_fd < 0)
        return -ENOENT;
    int r = clp_as_user_begin(&user, t->uid, t->gid);
    if (r < 0)
        return r;
    bool seen = is_visible(t, library, library_fd);
    if (seen)
        snprintf(ret_path, CLP_PLACE_PATH_BYTES, "%s", library);
    else if (!clp_where_noexec(t->temp_fd) && clp_where_may_write(t->temp_fd, t->uid, t->gid))
        snprintf(ret_path, CLP_PLACE_PATH_BYTES, "%s", t->temp_path);
    else
        r = clp_where(t, keep_path, ret_path);
    clp_as_user_end(&user);
    return seen ? 1 : r;
}

/* ---- all of it ----------------------------------------------------------------------------- */

static int make_as_user(struct clp_place *p, const struct clp_dotnet *t, const char *library,
                        int library_fd, struct clp_fault *fault)
{
    int r = make_meeting_place(p, t, fault);
    if (r == 0 && !*p->library_path)
        r = place_library(p, t, library, library_fd, fault);
    return r;
}

int clp_place_make(struct clp_place *p, const struct clp_dotnet *t, const char *library,
                   struct clp_fault *fault)
{
    struct clp_as_user user;
    *p = (struct clp_place){
        .uid = t->uid, .gid = t->gid, .meet = no_dir, .copy = no_dir, .listen_fd = -1};
    CLP_CLEANUP(clp_cleanup_fd) int library_fd = open(library, O_RDONLY | O_CLOEXEC);
    if (library_fd < 0)
        return clp_fault_set(fault, -errno,
                             "cannot read the library %s: %s; set CLRPULSE_LIBRARY "
                             "to its path",
                             library, strerror(errno));
    (void)is_mapped_already(p, t);
    int r = clp_as_user_begin(&user, p->uid, p->gid);
    if (r < 0)
        return clp_fault_set(fault, r,
                             "process %d belongs to uid %u, and this process may not act "
                             "as that user; run clrpulse as uid %u, or give it CAP_SETUID and "
                             "CAP_SETGID",
                             t->pid, p->uid, p->uid);
    r = make_as_user(p, t, library, library_fd, fault);
    clp_as_user_end(&user);
    if (r < 0)
        clp_place_remove(p);
    return r;
}

int clp_place_announce(struct clp_place *p, struct clp_fault *fault)
{
    const char *tmp = getenv("TMPDIR");
    if (!tmp || *tmp != '/')
        tmp = "/tmp";
    *p = (struct clp_place){
        .uid = geteuid(), .gid = getegid(), .meet = no_dir, .copy = no_dir, .listen_fd = -1};
    int parent = open(tmp, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r = parent < 0 ? -errno : make_dir(&p->meet, parent, p->uid, p->gid);
    if (r == 0) {
        int n = snprintf(p->socket_path, sizeof(p->socket_path), "%s/%s/" SOCKET_NAME, tmp,
                         p->meet.name);
        r = n < 0 || (size_t)n >= sizeof(p->socket_path) ? -ENAMETOOLONG : 0;
    }
    if (r == 0)
        r = listen_in(&p->meet, &p->listen_fd);
    if (r == 0)
        return 0;
    clp_place_remove(p);
    return clp_fault_set(fault, r, "cannot make a socket below %s: %s; set TMPDIR to another place",
                         tmp, strerror(-r));
}

void clp_place_remove(struct clp_place *p)
{
    struct clp_as_user user;
    bool as_user = clp_as_user_begin(&user, p->uid, p->gid) == 0;
    remove_dir(&p->copy, as_user);
    remove_dir(&p->meet, as_user);
    if (as_user)
        clp_as_user_end(&user);
    clp_cleanup_fd(&p->listen_fd);
    p->listen_fd = -1;
}
