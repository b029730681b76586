#include "agent/where.h"

#include "base/cleanup.h"
#include "base/core/proctext.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define MOUNTINFO_MAX_BYTES (1u << 20)

bool clp_where_noexec(int fd)
{
    struct statvfs fs;
    return fstatvfs(fd, &fs) == 0 && (fs.f_flag & (ST_NOEXEC | ST_RDONLY));
}

bool clp_where_may_write(int fd, uid_t uid, gid_t gid)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return false;
    if (uid == 0 || (st.st_mode & S_IWOTH))
        return true;
    return (st.st_uid == uid && (st.st_mode & S_IWUSR)) ||
           (st.st_gid == gid && (st.st_mode & S_IWGRP));
}

/* ---- the mount table ----------------------------------------------------------------------- */

/* "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw": proc(5). */
struct field {
    const char *at;
    size_t len;
};

static struct field next_field(const char **at, const char *end)
{
    const char *from = *at;
    while (from < end && *from == ' ')
        from++;
    const char *to = memchr(from, ' ', (size_t)(end - from));
    to = to ? to : end;
    *at = to;
    return (struct field){from, (size_t)(to - from)};
}

static bool is(struct field f, const char *text)
{
    return f.len == strlen(text) && memcmp(f.at, text, f.len) == 0;
}

static bool is_local(struct field type)
{
    static const char *const types[] = {"tmpfs", "ext2",    "ext3", "ext4",    "xfs",
                                        "btrfs", "overlay", "f2fs", "bcachefs"};
    for (size_t i = 0; i < CLP_ARRAY_LEN(types); i++)
        if (is(type, types[i]))
            return true;
    return false;
}

/* Blanks and the like are written as \ and three octal digits. */
static int unescape(struct field f, char *ret, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; i < f.len; i++) {
        char c = f.at[i];
        if (c == '\\') {
            unsigned value = 0;
            if (i + 3 >= f.len)
                return -EINVAL;
            for (int digits = 0; digits < 3; digits++) {
                char d = f.at[++i];
                if (d < '0' || d > '7')
                    return -EINVAL;
                value = value * 8 + (unsigned)(d - '0');
            }
            c = (char)value;
        }
        if (n + 1 >= cap || c == '\0')
            return -EINVAL;
        ret[n++] = c;
    }
    ret[n] = '\0';
    return n > 0 && ret[0] == '/' ? 0 : -EINVAL;
}

int clp_where_mount_line(const char *line, size_t len, char ret_path[CLP_WHERE_PATH_BYTES])
{
    const char *at = line, *end = line + len;
    char path[CLP_WHERE_PATH_BYTES];
    for (int i = 0; i < 4; i++)
        (void)next_field(&at, end);
    struct field point = next_field(&at, end), options = next_field(&at, end), f;
    do
        f = next_field(&at, end);
    while (f.len > 0 && !is(f, "-"));
    struct field type = next_field(&at, end);
    int r = type.len == 0 ? -EINVAL : unescape(point, path, sizeof(path));
    if (r < 0)
        return r;
    if (clp_proctext_list_has(options.at, options.len, "ro") ||
        clp_proctext_list_has(options.at, options.len, "noexec") || !is_local(type))
        return -ENOENT;
    memcpy(ret_path, path, strlen(path) + 1);
    return 0;
}

/* ---- looking ------------------------------------------------------------------------------- */

struct search {
    const struct clp_dotnet *t;
    int (*take)(void *context, int dir_fd, const char *path);
    void *context;
};

static int try_path(const struct search *s, const char *path)
{
    CLP_CLEANUP(clp_cleanup_fd)
    int fd = clp_file_open_in(s->t->root_fd, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || clp_where_noexec(fd) || !clp_where_may_write(fd, s->t->uid, s->t->gid))
        return -EACCES;
    return s->take(s->context, fd, path);
}

static int try_mounts(const struct search *s, const char *text, size_t len)
{
    int r = -EACCES;
    const char *end = text + len;
    for (unsigned n = 0; r < 0 && text < end && n < CLP_WHERE_MOUNTS_MAX; n++) {
        char path[CLP_WHERE_PATH_BYTES];
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t line = (size_t)((newline ? newline : end) - text);
        if (clp_where_mount_line(text, line, path) == 0)
            r = try_path(s, path);
        text += line + 1;
    }
    return r;
}

int clp_where(const struct clp_dotnet *t, int (*take)(void *context, int dir_fd, const char *path),
              void *context)
{
    static const char *const places[] = {"/tmp", "/var/tmp", "/dev/shm", "/run"};
    const struct search s = {t, take, context};
    size_t len;
    for (size_t i = 0; i < CLP_ARRAY_LEN(places); i++)
        if (try_path(&s, places[i]) == 0)
            return 0;
    CLP_CLEANUP(clp_cleanup_free)
    char *mounts =
        t->own_root ? clp_file_read_proc(t->pid, "mountinfo", MOUNTINFO_MAX_BYTES, &len) : NULL;
    return mounts ? try_mounts(&s, mounts, len) : -EACCES;
}
