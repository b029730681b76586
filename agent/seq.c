#include "agent/seq.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "base/vec.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAME_LEN (2 * CLP_GUID_BYTES)
#define TEXT_MAX_BYTES 32
#define UUID_LEN 36u

struct clp_seq {
    int dir_fd; /* -1: numbers are not kept on disk */
};

static void file_name(const uint8_t cookie[CLP_GUID_BYTES], char ret[NAME_LEN + 1])
{
    for (size_t i = 0; i < CLP_GUID_BYTES; i++)
        snprintf(ret + 2 * i, 3, "%02x", cookie[i]);
}

static bool is_ours(const char *name)
{
    return strlen(name) == NAME_LEN && strspn(name, "0123456789abcdef") == NAME_LEN;
}

struct kept {
    struct timespec written;
    char name[NAME_LEN + 1];
};

static int newest_first(const void *a, const void *b)
{
    const struct timespec *x = &((const struct kept *)a)->written;
    const struct timespec *y = &((const struct kept *)b)->written;
    return x->tv_sec != y->tv_sec ? (x->tv_sec < y->tv_sec) - (x->tv_sec > y->tv_sec)
                                  : (x->tv_nsec < y->tv_nsec) - (x->tv_nsec > y->tv_nsec);
}

/* Leaves the newest CLP_SEQ_FILES_MAX; their number. */
static uint32_t thin_out(int dir_fd, struct kept *files, uint32_t count)
{
    if (count <= CLP_SEQ_FILES_MAX)
        return count;
    qsort(files, count, sizeof(*files), newest_first);
    for (uint32_t i = CLP_SEQ_FILES_MAX; i < count; i++)
        (void)unlinkat(dir_fd, files[i].name, 0);
    return CLP_SEQ_FILES_MAX;
}

/* A file is written with every window, so one that is old belongs to an instance that has ended. */
static void sweep(int dir_fd)
{
    CLP_CLEANUP(clp_cleanup_dir) DIR *list = clp_file_list(dir_fd);
    CLP_CLEANUP(clp_cleanup_free) struct kept *files = NULL;
    uint32_t count = 0, cap = 0;
    struct stat st;
    for (struct dirent *e; list && (e = readdir(list));) {
        if (!is_ours(e->d_name) || fstatat(dir_fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (time(NULL) - st.st_mtime > CLP_SEQ_OLD_SECONDS) {
            (void)unlinkat(dir_fd, e->d_name, 0);
            continue;
        }
        if (count == 2 * CLP_SEQ_FILES_MAX)
            count = thin_out(dir_fd, files, count);
        if (CLP_VEC_GROW(files, cap, count + 1, 2 * CLP_SEQ_FILES_MAX) < 0)
            return;
        files[count].written = st.st_mtim;
        memcpy(files[count++].name, e->d_name, NAME_LEN + 1);
    }
    (void)thin_out(dir_fd, files, count);
}

static int open_dir(struct clp_seq *s, const char *state_dir, struct clp_fault *fault)
{
    char path[4096];
    int n = snprintf(path, sizeof(path), "%s/seq", state_dir);
    int r = n < 0 || (size_t)n >= sizeof(path) ? -ENAMETOOLONG : clp_file_mkdir_p(path, 0750);
    if (r == 0) {
        s->dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        r = s->dir_fd < 0 ? -errno : faccessat(s->dir_fd, ".", W_OK, AT_EACCESS) < 0 ? -errno : 0;
    }
    if (r < 0)
        return clp_fault_set(
            fault, r,
            "cannot keep the numbers of profiles in %.300s/seq: %s; make state.dir "
            "writable, or set another one",
            state_dir, strerror(-r));
    sweep(s->dir_fd);
    return 0;
}

int clp_seq_new(const char *state_dir, struct clp_seq **ret, struct clp_fault *fault)
{
    struct clp_seq *s = calloc(1, sizeof(*s));
    if (!s)
        return clp_fault_set(fault, -ENOMEM, "out of memory");
    s->dir_fd = -1;
    *ret = s;
    return open_dir(s, state_dir, fault);
}

struct clp_seq *clp_seq_free(struct clp_seq *s)
{
    if (!s)
        return NULL;
    clp_cleanup_fd(&s->dir_fd);
    free(s);
    return NULL;
}

/* A file that says anything but a number counts as none. */
static uint64_t read_next(const struct clp_seq *s, const char *name)
{
    CLP_CLEANUP(clp_cleanup_free) char *text = NULL;
    char *end;
    if (s->dir_fd < 0 || clp_file_read_at(s->dir_fd, name, TEXT_MAX_BYTES, &text, NULL) < 0)
        return 0;
    errno = 0;
    unsigned long long next = strtoull(text, &end, 10);
    return errno || end == text || *end != '\n' || next > CLP_SEQ_MAX ? 0 : next;
}

uint64_t clp_seq_next(const struct clp_seq *s, const uint8_t cookie[CLP_GUID_BYTES],
                      uint64_t shared)
{
    char name[NAME_LEN + 1];
    file_name(cookie, name);
    uint64_t kept = read_next(s, name);
    return shared <= CLP_SEQ_MAX ? CLP_MAX(kept, shared) : kept;
}

/* Written over in place, without fsync: one write of a few bytes is whole or not there after a kill
 * of the agent, and a power cut ends the runtime instance, too. A number never gets shorter. */
static int write_next(int dir_fd, const char *name, const char *text, size_t len)
{
    CLP_CLEANUP(clp_cleanup_fd)
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0640);
    ssize_t n = fd < 0 ? -1 : pwrite(fd, text, len, 0);
    return n < 0 ? -errno : (size_t)n == len ? 0 : -ENOSPC;
}

int clp_seq_taken(struct clp_seq *s, const uint8_t cookie[CLP_GUID_BYTES], uint64_t seq)
{
    char name[NAME_LEN + 1], text[TEXT_MAX_BYTES];
    file_name(cookie, name);
    int n = snprintf(text, sizeof(text), "%llu\n", (unsigned long long)seq + 1);
    return s->dir_fd < 0 ? 0 : write_next(s->dir_fd, name, text, (size_t)n);
}

/* The bytes of a UUID's text, whose first three fields are little-endian in a cookie. */
static bool parse_runtime(const char *text, uint8_t cookie[CLP_GUID_BYTES])
{
    static const uint8_t order[CLP_GUID_BYTES] = {3, 2, 1,  0,  5,  4,  7,  6,
                                                  8, 9, 10, 11, 12, 13, 14, 15};
    if (strlen(text) != UUID_LEN)
        return false;
    for (size_t i = 0; i < CLP_GUID_BYTES; i++) {
        unsigned byte;
        text += i == 4 || i == 6 || i == 8 || i == 10;
        if (!isxdigit((unsigned char)text[0]) || !isxdigit((unsigned char)text[1]) ||
            sscanf(text, "%2x", &byte) != 1)
            return false;
        cookie[order[i]] = (uint8_t)byte;
        text += 2;
    }
    return true;
}

void clp_seq_found(struct clp_seq *s, const char *runtime, uint64_t seq)
{
    uint8_t cookie[CLP_GUID_BYTES];
    if (seq < CLP_SEQ_MAX && parse_runtime(runtime, cookie) && clp_seq_next(s, cookie, 0) <= seq)
        (void)!clp_seq_taken(s, cookie, seq);
}

void clp_seq_forget(struct clp_seq *s, const uint8_t cookie[CLP_GUID_BYTES])
{
    char name[NAME_LEN + 1];
    file_name(cookie, name);
    if (s->dir_fd >= 0)
        (void)unlinkat(s->dir_fd, name, 0);
}
