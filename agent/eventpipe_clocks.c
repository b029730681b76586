#include "agent/eventpipe_clocks.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/core/proctext.h"
#include "base/core/text.h"
#include "base/file.h"
#include "base/map.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TEXT_MAX_BYTES 8192u

struct thread {
    uint64_t tid; /* in the target's namespace */
    uint64_t cpu_ns, read_ns;
    uint32_t round;
    char name[64];
};

struct clp_clocks {
    int32_t pid;
    bool same_namespace, has_clock;
    int task_fd;
    clockid_t clock; /* of the process */
    uint64_t process_ns, told_ns;
    uint32_t round;
    struct clp_map threads; /* our number -> struct thread */
    struct clp_map by_tid;  /* the target's number -> the same */
};

static int read_file(const struct clp_clocks *c, const char *tid, const char *file, char *buf,
                     size_t cap)
{
    char path[64];
    snprintf(path, sizeof(path), "%s/%s", tid, file);
    CLP_CLEANUP(clp_cleanup_fd) int fd = openat(c->task_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = read(fd, buf, cap - 1);
    if (n < 0)
        return -errno;
    buf[n] = '\0';
    return (int)n;
}

static void read_name(const struct clp_clocks *c, const char *tid, struct thread *t)
{
    char comm[64];
    int n = read_file(c, tid, "comm", comm, sizeof(comm));
    struct clp_text text = clp_text_in(t->name, sizeof(t->name));
    if (n > 0)
        clp_text_utf8_clean(&text, comm, (size_t)n - (comm[n - 1] == '\n'));
}

static uint64_t target_tid(const struct clp_clocks *c, const char *tid, uint64_t number)
{
    char text[TEXT_MAX_BYTES];
    struct clp_proc_status status;
    if (c->same_namespace)
        return number;
    int n = read_file(c, tid, "status", text, sizeof(text));
    if (n <= 0 || clp_proctext_status(text, (size_t)n, &status) < 0 || status.ns_pid <= 0)
        return number;
    return (uint64_t)status.ns_pid;
}

static struct thread *new_thread(struct clp_clocks *c, const char *tid, uint64_t number)
{
    struct thread *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->tid = target_tid(c, tid, number);
    read_name(c, tid, t);
    union clp_map_value v = {.ptr = t};
    if (clp_map_put_u64(&c->threads, number, v) < 0) {
        free(t);
        return NULL;
    }
    (void)!clp_map_put_u64(&c->by_tid, t->tid, v);
    return t;
}

static void forget(struct clp_clocks *c, uint64_t number, struct thread *t)
{
    if (clp_map_get_ptr_u64(&c->by_tid, t->tid) == t)
        (void)clp_map_remove_u64(&c->by_tid, t->tid, NULL);
    (void)clp_map_remove_u64(&c->threads, number, NULL);
    free(t);
}

static void forget_ended(struct clp_clocks *c)
{
    struct clp_map_item i;
    for (uint32_t at = clp_map_begin(&c->threads); clp_map_next(&c->threads, &at, &i);) {
        struct thread *t = i.value->ptr;
        if (c->round - t->round > 20) /* its name may still be asked for */
            forget(c, i.key_u64, t);
    }
}

/* A thread that is new between two readings began with nothing. */
static void read_thread(struct clp_clocks *c, const char *tid,
                        void (*moved)(void *context, const struct clp_clocks_moved *m),
                        void *context, uint64_t before_ns)
{
    char text[128];
    uint64_t number, cpu_ns;
    if (sscanf(tid, "%" SCNu64, &number) != 1 ||
        read_file(c, tid, "schedstat", text, sizeof(text)) <= 0 ||
        sscanf(text, "%" SCNu64, &cpu_ns) != 1)
        return;
    struct thread *t = clp_map_get_ptr_u64(&c->threads, number);
    bool known = t != NULL;
    if (!t)
        t = new_thread(c, tid, number);
    if (!t)
        return;
    if (cpu_ns < t->cpu_ns) { /* another thread with the number of one that ended */
        t->cpu_ns = 0;
        read_name(c, tid, t);
    }
    struct clp_clocks_moved m = {
        .tid = t->tid,
        .from_ns = known ? t->read_ns : before_ns,
        .to_ns = clp_clock_monotonic_ns(),
        .cpu_ns = cpu_ns - t->cpu_ns,
    };
    t->cpu_ns = cpu_ns;
    t->read_ns = m.to_ns;
    t->round = c->round;
    if (m.cpu_ns == 0 || c->round == 1)
        return;
    c->told_ns += m.cpu_ns;
    moved(context, &m);
}

static uint64_t process_clock(const struct clp_clocks *c)
{
    struct timespec ts;
    if (!c->has_clock || clock_gettime(c->clock, &ts) < 0)
        return 0;
    return (uint64_t)ts.tv_sec * CLP_NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

int clp_clocks_read(struct clp_clocks *c,
                    void (*moved)(void *context, const struct clp_clocks_moved *m), void *context)
{
    uint64_t before_ns = clp_clock_monotonic_ns();
    CLP_CLEANUP(clp_cleanup_dir) DIR *dir = clp_file_list(c->task_fd);
    if (!dir)
        return -errno;
    c->round++;
    if (c->round == 1)
        c->process_ns = process_clock(c);
    for (const struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] >= '0' && e->d_name[0] <= '9')
            read_thread(c, e->d_name, moved, context, before_ns);
    if (c->round % 20 == 0)
        forget_ended(c);
    return 0;
}

uint64_t clp_clocks_untold_ns(struct clp_clocks *c)
{
    uint64_t now_ns = process_clock(c);
    uint64_t used_ns = now_ns > c->process_ns ? now_ns - c->process_ns : 0;
    uint64_t untold_ns = used_ns > c->told_ns ? used_ns - c->told_ns : 0;
    c->told_ns += untold_ns;
    return untold_ns;
}

const char *clp_clocks_name(const struct clp_clocks *c, uint64_t tid)
{
    const struct thread *t = clp_map_get_ptr_u64(&c->by_tid, tid);
    return t && *t->name ? t->name : NULL;
}

int clp_clocks_new(int32_t pid, bool same_namespace, struct clp_clocks **ret)
{
    char path[64];
    struct clp_clocks *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    c->task_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->task_fd < 0) {
        int r = -errno;
        free(c);
        return r;
    }
    c->pid = pid;
    c->same_namespace = same_namespace;
    c->has_clock = clock_getcpuclockid(pid, &c->clock) == 0;
    clp_map_init(&c->threads, CLP_CLOCKS_THREADS_MAX);
    clp_map_init(&c->by_tid, CLP_CLOCKS_THREADS_MAX);
    *ret = c;
    return 0;
}

struct clp_clocks *clp_clocks_free(struct clp_clocks *c)
{
    struct clp_map_item i;
    if (!c)
        return NULL;
    for (uint32_t at = clp_map_begin(&c->threads); clp_map_next(&c->threads, &at, &i);)
        free(i.value->ptr);
    clp_map_done(&c->threads);
    clp_map_done(&c->by_tid);
    (void)close(c->task_fd);
    free(c);
    return NULL;
}
