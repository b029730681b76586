#include "sampler/inproc/tasks.h"

#include "base/core/proctext.h"
#include "base/core/text.h"
#include "sampler/inproc/procfile.h"
#include "sampler/inproc/rawcall.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define TASK_DIR "/proc/self/task"

struct dirent_raw { /* linux_dirent64 of getdents64(2) */
    uint64_t inode;
    int64_t offset;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

int64_t clp_tasks_stamp(void)
{
    struct stat st = {.st_nlink = 0};
    long r = clp_raw4(SYS_newfstatat, AT_FDCWD, (long)TASK_DIR, (long)&st, 0);
    return r < 0 ? r : (int64_t)st.st_nlink; /* the kernel adds the number of threads to it */
}

/* 0 for "." and "..". */
static int32_t tid_of(const char *name)
{
    int32_t n = 0;
    for (; *name >= '0' && *name <= '9' && n < INT32_MAX / 10 - 1; name++)
        n = n * 10 + (*name - '0');
    return *name ? 0 : n;
}

int clp_tasks_list(void (*task)(void *user, int32_t tid), void *user)
{
    union {
        char bytes[8192];
        uint64_t align;
    } buf = {.align = 0};
    long r = clp_raw4(SYS_openat, AT_FDCWD, (long)TASK_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (r < 0)
        return (int)r;
    int fd = (int)r;
    while ((r = clp_raw3(SYS_getdents64, fd, (long)buf.bytes, sizeof(buf.bytes))) > 0) {
        for (long at = 0; at < r;) {
            const struct dirent_raw *d = (const struct dirent_raw *)(buf.bytes + at);
            int32_t tid = tid_of(d->name);
            if (tid)
                task(user, tid);
            at += d->bytes;
        }
    }
    (void)clp_raw3(SYS_close, fd, 0, 0);
    return (int)r;
}

static struct clp_text task_path(char *buf, size_t cap, int32_t tid, const char *file)
{
    struct clp_text t = clp_text_in(buf, cap);
    clp_text_add(&t, TASK_DIR "/");
    clp_text_dec(&t, (uint64_t)tid);
    clp_text_add(&t, file);
    return t;
}

int clp_tasks_comm(int32_t tid, char ret[CLP_TASK_COMM_BYTES])
{
    char path[64], text[64];
    (void)task_path(path, sizeof(path), tid, "/comm");
    int64_t n = clp_procfile_read(path, text, sizeof(text));
    if (n <= 0)
        return n < 0 ? (int)n : -ENODATA;
    if (text[n - 1] == '\n')
        n--;
    struct clp_text t = clp_text_in(ret, CLP_TASK_COMM_BYTES);
    clp_text_utf8_clean(&t, text, (size_t)n);
    return 0;
}

int64_t clp_tasks_comm_raw(int32_t tid, char *ret, size_t cap)
{
    char path[64];
    (void)task_path(path, sizeof(path), tid, "/comm");
    int64_t n = clp_procfile_read(path, ret, cap);
    return n > 0 && ret[n - 1] == '\n' ? n - 1 : n;
}

int clp_tasks_blocked(int32_t tid, uint64_t *ret)
{
    char path[64], text[4096];
    struct clp_proc_status status;
    (void)task_path(path, sizeof(path), tid, "/status");
    int64_t n = clp_procfile_read(path, text, sizeof(text));
    if (n < 0)
        return (int)n;
    int r = clp_proctext_status(text, (size_t)n, &status);
    if (r == 0)
        *ret = status.sig_blocked;
    return r;
}
