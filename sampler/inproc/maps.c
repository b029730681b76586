#include "sampler/inproc/maps.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Longer than any path that the kernel prints. */
static char buffer[16384];

/* ---- all mappings ---- */

/* Hands on the whole lines of buffer[0..len); the rest is moved to the front. Bytes kept, or
 * -ECANCELED when `each` has had enough. */
static int hand_on_lines(size_t len, clp_maps_each_fn *each, void *user)
{
    size_t from = 0;
    for (;;) {
        const char *nl = memchr(buffer + from, '\n', len - from);
        if (!nl)
            break;
        struct clp_map_entry e;
        size_t end = (size_t)(nl - buffer);
        if (clp_proctext_map_line(buffer + from, end - from, &e) == 0 && !each(user, &e))
            return -ECANCELED;
        from = end + 1;
    }
    if (from == 0 && len == sizeof(buffer))
        from = len; /* a line without an end is nothing that we know */
    memmove(buffer, buffer + from, len - from);
    return (int)(len - from);
}

static int read_lines(int fd, clp_maps_each_fn *each, void *user)
{
    size_t have = 0;
    for (;;) {
        ssize_t n = read(fd, buffer + have, sizeof(buffer) - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : 0;
        int kept = hand_on_lines(have + (size_t)n, each, user);
        if (kept < 0)
            return 0;
        have = (size_t)kept;
    }
}

static int open_maps(void)
{
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int clp_maps_each(clp_maps_each_fn *each, void *user)
{
    int fd = open_maps();
    if (fd < 0)
        return fd;
    int r = read_lines(fd, each, user);
    (void)close(fd);
    return r;
}

/* ---- one mapping ---- */

static struct {
    bool keep;
    int fd; /* -1: not open */
} query_file = {.fd = -1};

void clp_maps_keep_open(bool keep)
{
    if (query_file.fd >= 0)
        (void)close(query_file.fd);
    query_file.keep = keep;
    query_file.fd = -1;
}

/* PROCMAP_QUERY of linux/fs.h (6.11), declared here because the headers may be older. */
struct procmap_query {
    uint64_t size, query_flags, query_addr;
    uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
    uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
    uint64_t vma_name_addr, build_id_addr;
};
static_assert(sizeof(struct procmap_query) == 104, "layout of the kernel");
#define PROCMAP_QUERY_IOCTL _IOWR('f', 17, struct procmap_query)
enum { VMA_READABLE = 1, VMA_WRITABLE = 2, VMA_EXECUTABLE = 4, VMA_SHARED = 8 };

static bool is_answer(int r)
{
    return r == 0 || r == -ENOENT || r == -ENAMETOOLONG;
}

/* Code of the runtime that runs on this thread may have closed a number of the application's: what
 * is no answer from a file that was kept is asked for again. */
static int query(struct procmap_query *q)
{
    int fd = query_file.fd, r = -EBADF;
    if (fd >= 0)
        r = ioctl(fd, PROCMAP_QUERY_IOCTL, q) < 0 ? -errno : 0;
    if (is_answer(r))
        return r;
    query_file.fd = -1;
    fd = open_maps();
    if (fd < 0)
        return fd;
    r = ioctl(fd, PROCMAP_QUERY_IOCTL, q) < 0 ? -errno : 0;
    if (query_file.keep && is_answer(r))
        query_file.fd = fd;
    else
        (void)close(fd);
    return r;
}

static enum { QUERY_UNKNOWN, QUERY_WORKS, QUERY_MISSING } query_support;

static int ask_kernel(uint64_t address, struct clp_map_entry *ret, char *path, size_t path_cap)
{
    struct procmap_query q = {.size = sizeof(q),
                              .query_addr = address,
                              .vma_name_addr = (uint64_t)(uintptr_t)path,
                              .vma_name_size = (uint32_t)path_cap};
    if (path_cap)
        path[0] = '\0';
    int r = query(&q);
    if (r < 0)
        return r;
    *ret = (struct clp_map_entry){
        .start = q.vma_start,
        .end = q.vma_end,
        .file_offset = q.vma_offset,
        .inode = q.inode,
        .dev_major = q.dev_major,
        .dev_minor = q.dev_minor,
        .readable = q.vma_flags & VMA_READABLE,
        .writable = q.vma_flags & VMA_WRITABLE,
        .executable = q.vma_flags & VMA_EXECUTABLE,
        .shared = q.vma_flags & VMA_SHARED,
        .path = path,
        .path_len = path_cap && q.vma_name_size ? strnlen(path, path_cap) : 0,
    };
    return 0;
}

struct wanted {
    uint64_t address;
    struct clp_map_entry *ret;
    char *path;
    size_t path_cap;
    bool found;
};

static bool take_if_covered(void *user, const struct clp_map_entry *e)
{
    struct wanted *w = user;
    if (e->end <= w->address)
        return true;
    if (e->start > w->address)
        return false;
    size_t n = w->path_cap ? CLP_MIN(e->path_len, w->path_cap - 1) : 0;
    if (w->path_cap) {
        memcpy(w->path, e->path, n);
        w->path[n] = '\0';
    }
    *w->ret = *e;
    w->ret->path = w->path;
    w->ret->path_len = n;
    w->found = true;
    return false;
}

static int search_all(uint64_t address, struct clp_map_entry *ret, char *path, size_t path_cap)
{
    struct wanted w = {.address = address, .ret = ret, .path = path, .path_cap = path_cap};
    int r = clp_maps_each(take_if_covered, &w);
    return r < 0 ? r : w.found ? 0 : -ENOENT;
}

int clp_maps_find(uint64_t address, struct clp_map_entry *ret, char *path, size_t path_cap)
{
    if (query_support != QUERY_MISSING) {
        int r = ask_kernel(address, ret, path, path_cap);
        if (r == 0 || r == -ENOENT) {
            query_support = QUERY_WORKS;
            return r;
        }
        /* -ENAMETOOLONG: this mapping's name only. Anything else: not this kernel, not here. */
        if (r != -ENAMETOOLONG)
            query_support = QUERY_MISSING;
    }
    return search_all(address, ret, path, path_cap);
}

bool clp_maps_find_is_cheap(void)
{
    struct clp_map_entry e;
    if (query_support == QUERY_UNKNOWN)
        (void)!clp_maps_find((uint64_t)(uintptr_t)&query_support, &e, NULL, 0);
    return query_support == QUERY_WORKS;
}

void clp_maps_forbid_query(bool forbid)
{
    query_support = forbid ? QUERY_MISSING : QUERY_UNKNOWN;
}
