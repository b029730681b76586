#include "sampler/inproc/bounds.h"

#include "base/core/proctext.h"
#include "sampler/inproc/procfile.h"
#include "sampler/inproc/rawcall.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>

#define PAGE_BYTES 4096ull
#define PAGEMAP_GUARD (1ull << 58)
#define GUARD_SEARCH_MAX                                                                           \
    (1ull << 30) /* a stack larger than this is cut there: deeper SPs are "other" */
/* The kernel keeps at least 128 MB free below the stack of the main thread; half of that is surely
 * nobody else's. */
#define MAIN_STACK_MAX (64ull << 20)
/* More thread-local data than this between stack and control block is not looked for. */
#define TLS_MAX (1ull << 20)

struct search {
    struct clp_bounds *b;
    size_t n;
    uint64_t previous_end; /* of the mapping before this line's */
};

static uint64_t main_stack_limit(void)
{
    struct rlimit64 lim = {0, 0};
    long r = clp_raw4(SYS_prlimit64, 0, RLIMIT_STACK, 0, (long)&lim);
    return r < 0 ? 0 : CLP_MIN((uint64_t)lim.rlim_cur, MAIN_STACK_MAX);
}

static bool is_named(const struct clp_map_entry *m, const char *name)
{
    return m->path_len == strlen(name) && !memcmp(m->path, name, m->path_len);
}

/* The main thread's stack grows on demand: what it may grow into is its own as well. */
static void bound_main(struct clp_bounds *b, const struct clp_map_entry *m, uint64_t previous_end)
{
    uint64_t room = main_stack_limit();
    uint64_t low = m->end > room ? m->end - room : 0;
    b->high = m->end;
    b->low = CLP_MIN(m->start, CLP_MAX(low, previous_end));
}

static bool match_line(void *user, const char *text, size_t len)
{
    struct search *s = user;
    struct clp_map_entry m;
    if (clp_proctext_map_line(text, len, &m) < 0)
        return true;
    bool stack = is_named(&m, "[stack]");
    bool usable = m.readable && m.writable && !m.shared;
    for (size_t i = 0; usable && i < s->n; i++) {
        struct clp_bounds *b = &s->b[i];
        if (b->main_thread && stack) {
            bound_main(b, &m, s->previous_end);
        } else if (!b->main_thread && b->fs_base > m.start && b->fs_base < m.end) {
            b->low = m.start;
            b->high = b->fs_base;
        }
    }
    s->previous_end = m.end;
    return true;
}

static int open_pagemap(void)
{
    return (int)clp_raw4(SYS_openat, AT_FDCWD, (long)"/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
}

/* The end of the highest guard page in [low, high), or `low`. */
static uint64_t above_guard(int fd, uint64_t low, uint64_t high)
{
    uint64_t entries[512] = {0};
    uint64_t page = high / PAGE_BYTES, first = low / PAGE_BYTES;
    if (high - low > GUARD_SEARCH_MAX)
        first = (high - GUARD_SEARCH_MAX) / PAGE_BYTES;
    while (page > first) {
        uint64_t n = CLP_MIN(page - first, CLP_ARRAY_LEN(entries));
        long r = clp_raw4(SYS_pread64, fd, (long)entries, (long)(n * 8), (long)((page - n) * 8));
        if (r != (long)(n * 8))
            return low; /* a kernel without the file's new bits has no such guards either */
        for (uint64_t i = n; i-- > 0;)
            if (entries[i] & PAGEMAP_GUARD)
                return (page - n + i + 1) * PAGE_BYTES;
        page -= n;
    }
    return CLP_MAX(low, first * PAGE_BYTES);
}

static void respect_guards(struct clp_bounds *b, size_t n)
{
    int fd = open_pagemap();
    if (fd < 0)
        return;
    for (size_t i = 0; i < n; i++)
        if (!b[i].main_thread && b[i].high)
            b[i].low = above_guard(fd, b[i].low, b[i].high);
    (void)clp_raw3(SYS_close, fd, 0, 0);
}

int clp_bounds_find(struct clp_bounds *b, size_t n)
{
    char text[8192];
    struct search s = {.b = b, .n = n};
    for (size_t i = 0; i < n; i++)
        b[i].low = b[i].high = 0;
    int r = clp_procfile_lines("/proc/self/maps", text, sizeof(text), match_line, &s);
    if (r < 0)
        return r;
    respect_guards(b, n);
    return 0;
}

bool clp_bounds_own(uint64_t *ret_low, uint64_t *ret_high)
{
    pthread_attr_t attr;
    void *addr = NULL;
    size_t size = 0, guard = 0;
    uint64_t tcb;
    __asm__("mov %%fs:0, %0" : "=r"(tcb));
    if (clp_raw3(SYS_getpid, 0, 0, 0) == clp_raw3(SYS_gettid, 0, 0, 0) ||
        pthread_getattr_np(pthread_self(), &attr) != 0)
        return false;
    int r = pthread_attr_getstack(&attr, &addr, &size);
    if (r == 0)
        r = pthread_attr_getguardsize(&attr, &guard);
    (void)pthread_attr_destroy(&attr);
    /* Whether the guard is part of the size differs between versions of libc: above it in any case.
     */
    uint64_t low = (uint64_t)(uintptr_t)addr + guard, high = (uint64_t)(uintptr_t)addr + size;
    /* glibc counts the control block and the thread-local data as stack; musl puts them right above
     * it. Anything else is not libc's usual stack. */
    if (r != 0 || low >= high || low >= tcb || (tcb > high && tcb - high > TLS_MAX))
        return false;
    *ret_low = low;
    *ret_high = CLP_MIN(tcb, high);
    return true;
}
