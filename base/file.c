#include "base/file.h"
#include "base/cleanup.h"
#include "base/core/text.h"
#include "base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* ---- reading -------------------------------------------------------------------------------- */

static int require_regular(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    return S_ISREG(st.st_mode) ? 0 : -EINVAL;
}

int clp_file_read_fd(int fd, size_t ceiling_bytes, char **ret, size_t *ret_len)
{
    CLP_CLEANUP(clp_strbuf_done) struct clp_strbuf b;
    char piece[16384];
    clp_strbuf_init(&b, ceiling_bytes);
    for (;;) {
        ssize_t n = read(fd, piece, sizeof(piece));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        clp_strbuf_add(&b, piece, (size_t)n);
        if (b.error)
            break;
    }
    int r = clp_strbuf_take(&b, ret, ret_len);
    return r == -ENOBUFS ? -EFBIG : r;
}

int clp_file_read_at(int dirfd, const char *path, size_t ceiling_bytes, char **ret, size_t *ret_len)
{
    CLP_CLEANUP(clp_cleanup_fd)
    int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    int r = require_regular(fd);
    return r < 0 ? r : clp_file_read_fd(fd, ceiling_bytes, ret, ret_len);
}

int clp_file_read(const char *path, size_t ceiling_bytes, char **ret, size_t *ret_len)
{
    return clp_file_read_at(AT_FDCWD, path, ceiling_bytes, ret, ret_len);
}

char *clp_file_read_proc(int32_t pid, const char *name, size_t ceiling_bytes, size_t *ret_len)
{
    char path[64], *text = NULL;
    int n = pid ? snprintf(path, sizeof(path), "/proc/%d/%s", pid, name)
                : snprintf(path, sizeof(path), "/proc/self/%s", name);
    if (n < 0 || (size_t)n >= sizeof(path) ||
        clp_file_read(path, ceiling_bytes, &text, ret_len) < 0)
        return NULL;
    return text;
}

DIR *clp_file_list(int dirfd)
{
    CLP_CLEANUP(clp_cleanup_fd)
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (list)
        fd = -1; /* the list's now */
    return list;
}

/* ---- opening inside a foreign root ---------------------------------------------------------- */

static const char *skip_slashes(const char *s)
{
    while (*s == '/')
        s++;
    return s;
}

/* One component of a path into `name`: its length, 0 at the end, or negative errno. ".." is
 * refused: in a tree that changes under us it may lead out of the root. */
static int next_component(const char *at, char name[NAME_MAX + 1])
{
    size_t len = strcspn(at, "/");
    if (len > NAME_MAX)
        return -ENAMETOOLONG;
    memcpy(name, at, len);
    name[len] = '\0';
    return strcmp(name, "..") == 0 ? -EXDEV : (int)len;
}

/* With O_PATH | O_NOFOLLOW the kernel opens a link itself instead of failing. */
static int refuse_symlink(int opened)
{
    CLP_CLEANUP(clp_cleanup_fd) int fd = opened;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    return S_ISLNK(st.st_mode) ? -ELOOP : CLP_TAKE_FD(fd);
}

/* What openat2 does in one call, for kernels before 5.6 and for seccomp filters that refuse it. */
static int walk_in(int rootfd, const char *path, int flags)
{
    CLP_CLEANUP(clp_cleanup_fd) int dir = -1;
    const char *at = skip_slashes(path);
    for (;;) {
        char name[NAME_MAX + 1];
        int len = next_component(at, name);
        if (len < 0)
            return len;
        const char *rest = skip_slashes(at + len);
        bool last = *rest == '\0';
        const char *open_name = len ? name : ".";
        int how = last ? flags : O_PATH | O_DIRECTORY;
        int fd = openat(dir >= 0 ? dir : rootfd, open_name, how | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            return errno == ENOTDIR && !last ? -ELOOP : -errno;
        if (last)
            return refuse_symlink(fd);
        clp_cleanup_fd(&dir);
        dir = fd;
        at = rest;
    }
}

int clp_file_open_in(int rootfd, const char *path, int flags)
{
    struct open_how how = {
        .flags = (uint64_t)(flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY),
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    if (flags & O_PATH)
        how.flags &= ~(uint64_t)(O_NONBLOCK | O_NOCTTY); /* openat2 refuses flags without meaning */
    for (int tries = 0; tries < 8; tries++) {
        int fd = (int)syscall(SYS_openat2, rootfd, *path ? path : ".", &how, sizeof(how));
        if (fd >= 0)
            return fd;
        if (errno == EAGAIN) /* a rename raced with the walk */
            continue;
        if (errno == ENOSYS || errno == EPERM)
            return walk_in(rootfd, path, (int)how.flags);
        return -errno;
    }
    return -EAGAIN;
}

/* ---- writing -------------------------------------------------------------------------------- */

int clp_file_write_fd(int fd, const void *data, size_t len)
{
    const char *at = data;
    while (len > 0) {
        ssize_t n = write(fd, at, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        at += n;
        len -= (size_t)n;
    }
    return 0;
}

static int write_and_sync(int dirfd, const char *name, const void *data, size_t len, mode_t mode)
{
    CLP_CLEANUP(clp_cleanup_fd)
    int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0)
        return -errno;
    int r = clp_file_write_fd(fd, data, len);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    if (close(CLP_TAKE_FD(fd)) < 0 && r == 0)
        r = -errno; /* NFS tells a full disk only here */
    if (r < 0)
        (void)unlinkat(dirfd, name, 0);
    return r;
}

/* A name that no other writer of this machine uses now; a left-over of a dead process may exist. */
static void temp_name(char *buf, size_t cap)
{
    static _Atomic uint32_t serial;
    struct clp_text t = clp_text_in(buf, cap);
    clp_text_add(&t, ".clrpulse-");
    clp_text_dec(&t, (uint64_t)getpid());
    clp_text_char(&t, '-');
    clp_text_dec(&t, atomic_fetch_add(&serial, 1));
    clp_text_add(&t, ".tmp");
}

int clp_file_write_at(int dirfd, const char *name, const void *data, size_t len, mode_t mode)
{
    if (*name == '\0' || strchr(name, '/'))
        return -EINVAL;
    CLP_CLEANUP(clp_cleanup_fd) int dir = -1;
    char temp[64];
    int r = -EEXIST;
    for (int tries = 0; r == -EEXIST && tries < 8; tries++) {
        temp_name(temp, sizeof(temp));
        r = write_and_sync(dirfd, temp, data, len, mode);
    }
    if (r < 0)
        return r;
    if (renameat(dirfd, temp, dirfd, name) < 0) {
        r = -errno;
        (void)unlinkat(dirfd, temp, 0);
        return r;
    }
    /* The rename itself must reach the disk too. */
    dir = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir < 0 || fsync(dir) == 0 || errno == EINVAL ? 0 : -errno;
}

static int write_into(const char *path, const void *data, size_t len)
{
    CLP_CLEANUP(clp_cleanup_fd) int fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    return fd < 0 ? -errno : clp_file_write_fd(fd, data, len);
}

static int replace(const char *path, const void *data, size_t len, mode_t mode)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return clp_file_write_at(AT_FDCWD, path, data, len, mode);
    CLP_CLEANUP(clp_cleanup_free) char *dir = strndup(path, (size_t)(slash - path) + 1);
    if (!dir)
        return -ENOMEM;
    CLP_CLEANUP(clp_cleanup_fd) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : clp_file_write_at(fd, slash + 1, data, len, mode);
}

int clp_file_write(const char *path, const void *data, size_t len, mode_t mode)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode) ? -EISDIR : write_into(path, data, len);
    CLP_CLEANUP(clp_cleanup_free) char *real = realpath(path, NULL); /* NULL: not there yet */
    return replace(real ? real : path, data, len, mode);
}

static int make_directory(const char *path, mode_t mode)
{
    struct stat st;
    if (mkdir(path, mode) == 0)
        return 0;
    int error = errno;
    if (stat(path, &st) < 0)
        return -error;
    return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

int clp_file_mkdir_p(const char *path, mode_t mode)
{
    CLP_CLEANUP(clp_cleanup_free) char *copy = strdup(path);
    if (!copy)
        return -ENOMEM;
    for (char *slash = copy; (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        int r = make_directory(copy, mode);
        *slash = '/';
        if (r < 0)
            return r;
    }
    return make_directory(copy, mode);
}
