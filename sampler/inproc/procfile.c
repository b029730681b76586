#include "sampler/inproc/procfile.h"

#include "sampler/inproc/rawcall.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static long open_read(const char *path)
{
    return clp_raw4(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0);
}

static long read_some(int fd, char *buf, size_t n)
{
    long r;
    do
        r = clp_raw3(SYS_read, fd, (long)buf, (long)n);
    while (r == -EINTR);
    return r;
}

int64_t clp_procfile_read(const char *path, char *buf, size_t cap)
{
    size_t len = 0;
    long r = open_read(path);
    if (r < 0)
        return r;
    int fd = (int)r;
    while (len < cap - 1 && (r = read_some(fd, buf + len, cap - 1 - len)) > 0)
        len += (size_t)r;
    (void)clp_raw3(SYS_close, fd, 0, 0);
    if (r < 0)
        return r;
    buf[len] = '\0';
    return (int64_t)len;
}

struct lines {
    char *buf;
    size_t len, cap;
    bool dropping; /* inside a line that does not fit */
    bool (*line)(void *user, const char *text, size_t len);
    void *user;
};

/* Hands out the complete lines of the buffer and keeps the rest. false: enough. */
static bool hand_out(struct lines *l)
{
    size_t at = 0;
    char *end;
    while ((end = memchr(l->buf + at, '\n', l->len - at))) {
        size_t n = (size_t)(end - (l->buf + at));
        if (!l->dropping && !l->line(l->user, l->buf + at, n))
            return false;
        l->dropping = false;
        at += n + 1;
    }
    l->len -= at;
    memmove(l->buf, l->buf + at, l->len);
    if (l->len == l->cap) {
        l->dropping = true;
        l->len = 0;
    }
    return true;
}

int clp_procfile_lines(const char *path, char *buf, size_t cap,
                       bool (*line)(void *user, const char *text, size_t len), void *user)
{
    struct lines l = {.buf = buf, .cap = cap, .line = line, .user = user};
    long r = open_read(path);
    if (r < 0)
        return (int)r;
    int fd = (int)r;
    while ((r = read_some(fd, buf + l.len, cap - l.len)) > 0) {
        l.len += (size_t)r;
        if (!hand_out(&l))
            break;
    }
    (void)clp_raw3(SYS_close, fd, 0, 0);
    return r < 0 ? (int)r : 0;
}
