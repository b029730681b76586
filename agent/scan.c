#include "agent/scan.h"

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#ifndef FUSE_SUPER_MAGIC
#define FUSE_SUPER_MAGIC 0x65735546
#endif

#define PIDS_MAX (1u << 20)
#define FIRST_PAUSE_NS CLP_SCAN_EVERY_NS
#define LONGEST_PAUSE_NS (30 * CLP_NSEC_PER_SEC)
#define LIST_EVERY_NS (10 * CLP_NSEC_PER_SEC)
#define NAMES_EVERY_NS CLP_NSEC_PER_SEC
#define NUDGE_EVERY_NS CLP_NSEC_PER_SEC
#define NEW_AT_ONCE 64u /* numbers that are tried one by one; of more a listing tells cheaper */
#define COST_SHARE 200u /* of the time that passes, one part for rounds */

/* What is known of a pid. */
struct known {
    uint64_t look_at_ns; /* not before */
    uint64_t looked_ns;  /* the last time */
    uint64_t pause_ns;   /* the last one */
    uint64_t seen_round;
    uint64_t start_ticks; /* of the process that this is about; 0: not looked at */
    uint64_t name;        /* of the program, hashed; 0: not looked at */
    bool held;            /* look_at_ns is the owner's word */
};

struct clp_scan {
    const struct clp_discover_roots *roots;
    struct clp_map pids; /* pid -> struct known */
    uint64_t round;      /* the number of listings */
    uint64_t now_ns, listed_ns, names_ns;
    uint64_t look_at_ns; /* of all that are known, the earliest or before that */
    int64_t last_pid;    /* that the kernel had given out at this round; 0: not known */
    int64_t before;      /* and at the round before */
    bool foreign;        /* /proc counts otherwise than we: last_pid is never known */
    bool names, hurry;   /* this listing reads names; the next round is one */
    struct clp_dotnet candidates[CLP_SCAN_AT_ONCE];
    size_t count;
};

/* The mount may be of another namespace, while the kernel's loadavg always speaks of our own; and
 * in containers it may be a file of somebody else (lxcfs), which speaks of the host's. */
static bool is_foreign(const struct clp_discover_roots *roots)
{
    struct statfs file;
    char path[512], self[32];
    snprintf(path, sizeof(path), "%s/loadavg", roots->proc);
    if (statfs(path, &file) == 0 && file.f_type == FUSE_SUPER_MAGIC)
        return true;
    snprintf(path, sizeof(path), "%s/self", roots->proc);
    ssize_t n = readlink(path, self, sizeof(self) - 1);
    self[CLP_MAX(n, 0)] = '\0';
    return strtol(self, NULL, 10) != (long)getpid();
}

int clp_scan_new(const struct clp_discover_roots *roots, struct clp_scan **ret)
{
    struct clp_scan *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->roots = roots;
    s->foreign = is_foreign(roots);
    clp_map_init(&s->pids, PIDS_MAX);
    *ret = s;
    return 0;
}

struct clp_scan *clp_scan_free(struct clp_scan *s)
{
    struct clp_map_item i;
    if (!s)
        return NULL;
    for (uint32_t at = clp_map_begin(&s->pids); clp_map_next(&s->pids, &at, &i);)
        free(i.value->ptr);
    clp_map_done(&s->pids);
    free(s);
    return NULL;
}

static struct known *know(struct clp_scan *s, int32_t pid)
{
    struct known *k = clp_map_get_ptr_u64(&s->pids, (uint64_t)pid);
    if (k)
        return k;
    k = calloc(1, sizeof(*k));
    if (k && clp_map_put_u64(&s->pids, (uint64_t)pid, (union clp_map_value){.ptr = k}) < 0) {
        free(k);
        return NULL;
    }
    return k;
}

static void pause_longer(struct known *k, uint64_t now_ns)
{
    k->pause_ns = k->pause_ns ? CLP_MIN(k->pause_ns * 2, LONGEST_PAUSE_NS) : FIRST_PAUSE_NS;
    k->look_at_ns = now_ns + k->pause_ns;
}

/* Three system calls and no memory. */
static uint64_t name_of(const struct clp_scan *s, int32_t pid)
{
    char path[512], comm[64];
    snprintf(path, sizeof(path), "%s/%d/comm", s->roots->proc, pid);
    CLP_CLEANUP(clp_cleanup_fd) int fd = open(path, O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, comm, sizeof(comm));
    return n <= 0 ? 0 : clp_hash_bytes(comm, (size_t)n) | 1;
}

/* The number that the kernel gave out last, to a process or a thread, the last word of loadavg:
 * while it stands still there is nothing new. 0 when it cannot be read, or says nothing (gVisor).
 */
static int64_t last_pid(const struct clp_scan *s)
{
    char path[512], text[128];
    if (s->foreign)
        return 0;
    snprintf(path, sizeof(path), "%s/loadavg", s->roots->proc);
    CLP_CLEANUP(clp_cleanup_fd) int fd = open(path, O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    text[CLP_MAX(n, 0)] = '\0';
    const char *space = strrchr(text, ' ');
    return space ? strtoll(space, NULL, 10) : 0;
}

/* Whether it is another program than when it was looked at before: a process may become a .NET one
 * by exec, which its start time does not show but its name does. Its threads' numbers show it as
 * well, so names are for when there were too many of those. */
static bool has_changed(const struct clp_scan *s, int32_t pid, struct known *k)
{
    if (!s->names)
        return false;
    uint64_t name = name_of(s, pid);
    bool changed = k->name && name && name != k->name;
    k->name = name;
    if (changed)
        k->pause_ns = 0;
    return changed;
}

static bool is_due(const struct clp_scan *s, int32_t pid, struct known *k)
{
    if (s->now_ns >= k->look_at_ns || (s->hurry && !k->held))
        return true;
    return !k->held && has_changed(s, pid, k);
}

static void note_due(struct clp_scan *s, const struct known *k)
{
    s->look_at_ns = CLP_MIN(s->look_at_ns, k->look_at_ns);
}

/* Somebody who has begun to start threads may have become a .NET program. */
static void nudge(struct clp_scan *s, int32_t pid)
{
    struct known *k = clp_map_get_ptr_u64(&s->pids, (uint64_t)pid);
    if (!k || k->held)
        return;
    k->pause_ns = 0;
    k->look_at_ns = CLP_MIN(k->look_at_ns, k->looked_ns + NUDGE_EVERY_NS);
    note_due(s, k);
}

static void forget(struct clp_scan *s, uint64_t pid, struct known *k)
{
    free(k);
    (void)clp_map_remove_u64(&s->pids, pid, NULL);
}

/* False: it is a thread, which nobody looks at twice. */
static bool look_at(struct clp_scan *s, int32_t pid, struct known *k)
{
    int32_t owner = 0;
    struct clp_dotnet *d = &s->candidates[s->count];
    k->held = false;
    k->looked_ns = s->now_ns;
    pause_longer(k, s->now_ns);
    int r = clp_dotnet_open_threaded(s->roots, pid, d, &owner);
    if (owner)
        nudge(s, owner);
    if (r < 0)
        return owner == 0;
    k->start_ticks = d->start_ticks;
    if (d->state == CLP_DOTNET_PORT) {
        s->count++;
        return true;
    }
    if (d->kernel_thread) { /* takes a new name with each piece of work */
        k->look_at_ns = UINT64_MAX;
        k->held = true;
    }
    clp_dotnet_done(d);
    return true;
}

/* Numbers are given out in a circle. */
static bool is_new_number(const struct clp_scan *s, int32_t pid)
{
    if (s->before <= 0 || s->last_pid <= 0)
        return false;
    return s->before <= s->last_pid ? pid > s->before && pid <= s->last_pid
                                    : pid > s->before || pid <= s->last_pid;
}

/* One that had this number before may have gone and left it since the last listing. */
static bool is_another(const struct clp_scan *s, int32_t pid, const struct known *k)
{
    const struct clp_dotnet was = {.pid = pid, .start_ticks = k->start_ticks};
    return k->start_ticks && is_new_number(s, pid) && !clp_dotnet_alive(s->roots, &was);
}

static int look(void *context, int32_t pid)
{
    struct clp_scan *s = context;
    struct known *k = know(s, pid);
    if (!k)
        return 0;
    if (is_another(s, pid, k))
        *k = (struct known){0};
    k->seen_round = s->round;
    if (s->count < CLP_SCAN_AT_ONCE && is_due(s, pid, k) && !look_at(s, pid, k))
        forget(s, (uint64_t)pid, k);
    else
        note_due(s, k);
    return 0;
}

static void forget_gone(struct clp_scan *s)
{
    struct clp_map_item i;
    for (uint32_t at = clp_map_begin(&s->pids); clp_map_next(&s->pids, &at, &i);) {
        struct known *k = i.value->ptr;
        if (k->seen_round == s->round)
            continue;
        forget(s, i.key_u64, k);
    }
}

/* Nobody answers for one that is stopped; it is not made to wait in vain. */
static bool is_stopped(const struct clp_dotnet *d)
{
    return d->run_state == 'T' || d->run_state == 't';
}

/* The stopped ones to the end; the number of the others. */
static size_t part(struct clp_scan *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++) {
        if (is_stopped(&s->candidates[i]))
            continue;
        struct clp_dotnet d = s->candidates[i];
        s->candidates[i] = s->candidates[n];
        s->candidates[n++] = d;
    }
    return n;
}

/* A smaller number than before has gone past the beginning. */
static bool has_missed_some(const struct clp_scan *s)
{
    return s->before <= 0 || s->last_pid <= 0 || s->last_pid < s->before ||
           s->last_pid - s->before > (int64_t)NEW_AT_ONCE;
}

static int list(struct clp_scan *s, bool missed)
{
    s->round++;
    s->listed_ns = s->now_ns;
    s->look_at_ns = UINT64_MAX;
    s->names = missed && s->now_ns - s->names_ns >= NAMES_EVERY_NS;
    if (s->names)
        s->names_ns = s->now_ns;
    int r = clp_discover_pids(s->roots, look, s);
    s->hurry = s->names = false;
    if (r == 0)
        forget_gone(s);
    return r;
}

static void look_at_due(struct clp_scan *s)
{
    struct clp_map_item i;
    if (s->now_ns < s->look_at_ns)
        return;
    s->look_at_ns = UINT64_MAX;
    for (uint32_t at = clp_map_begin(&s->pids); clp_map_next(&s->pids, &at, &i);)
        (void)look(s, (int32_t)i.key_u64);
}

/* The candidates' own words. */
static void ask(struct clp_scan *s, void (*found)(void *context, struct clp_dotnet *d),
                void *context)
{
    clp_dotnet_ask(s->candidates, part(s), CLP_DISCOVER_ASK_NS);
    for (size_t i = 0; i < s->count; i++) {
        found(context, &s->candidates[i]);
        clp_dotnet_done(&s->candidates[i]);
    }
}

int clp_scan_round(struct clp_scan *s, uint64_t now_ns,
                   void (*found)(void *context, struct clp_dotnet *d), void *context)
{
    int r = 0;
    s->before = s->last_pid;
    s->now_ns = now_ns;
    s->last_pid = last_pid(s);
    s->count = 0;
    bool missed = has_missed_some(s);
    if (missed || s->round == 0 || s->hurry || now_ns - s->listed_ns >= LIST_EVERY_NS) {
        r = list(s, missed);
    } else {
        for (int64_t pid = s->before + 1; pid <= s->last_pid; pid++)
            (void)look(s, (int32_t)pid);
        look_at_due(s);
    }
    ask(s, found, context);
    return r;
}

void clp_scan_hold(struct clp_scan *s, int32_t pid, uint64_t until_ns)
{
    struct known *k = know(s, pid);
    if (!k)
        return;
    k->look_at_ns = until_ns;
    k->held = true;
    s->look_at_ns = CLP_MIN(s->look_at_ns, until_ns);
    k->seen_round = CLP_MAX(k->seen_round, s->round);
}

void clp_scan_hurry(struct clp_scan *s)
{
    s->hurry = true;
}

void clp_scan_release(struct clp_scan *s)
{
    struct clp_map_item i;
    s->look_at_ns = 0;
    for (uint32_t at = clp_map_begin(&s->pids); clp_map_next(&s->pids, &at, &i);) {
        struct known *k = i.value->ptr;
        if (k->look_at_ns != UINT64_MAX)
            k->look_at_ns = 0;
    }
}

uint64_t clp_scan_pause_ns(uint64_t cost_ns)
{
    return CLP_MIN(CLP_MAX(cost_ns * COST_SHARE, CLP_SCAN_EVERY_NS), CLP_SCAN_LATEST_NS);
}
