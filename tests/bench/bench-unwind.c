/* What a frame costs: stacks of a live .NET program are recorded, with every answer that the walker
 * asks for, and walked again from memory.
 *
 *   bench-unwind [-n STACKS] PROGRAM MODE [OPTION]...
 *
 * Looking code up is a hash table here, so the figure is the walker's own. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/walk/process.h"
#include "tests/walk/trace.h"

#define STACK_MAX (256u << 10)
#define STACKS_MAX 4096
#define ROUNDS 25
#define ANSWERS (1u << 18)
#define READS_MAX 65536
#define LIMIT_NS 150.0

struct answer {
    uint64_t ip; /* 0 = empty */
    struct clp_code code;
};

struct reading {
    uint64_t address;
    int64_t n;
    size_t len;
    uint8_t bytes[256];
};

struct recorded {
    struct clp_walk_input in;
    uint8_t *stack;
};

static struct process process;
static struct answer *answers;
static struct reading *readings;
static size_t nreadings;
static struct recorded recorded[STACKS_MAX];
static size_t nrecorded;
static struct clp_walk_state state;
static struct clp_walk_frame frames[CLP_WALK_FRAMES_MAX];
static bool recording;

static struct answer *answer_at(uint64_t ip)
{
    size_t at = (ip * 0x9e3779b97f4a7c15ull) >> 46;
    while (answers[at].ip && answers[at].ip != ip)
        at = (at + 1) % ANSWERS;
    return &answers[at];
}

static void find(void *user, uint64_t ip, uint64_t time_ns, struct clp_code *ret)
{
    struct answer *a = answer_at(ip);
    (void)user;
    if (recording && !a->ip) {
        process.source.find(&process, ip, time_ns, &a->code);
        a->ip = ip;
    }
    *ret = a->code;
}

static int64_t read_code(void *user, uint64_t address, void *buf, size_t len)
{
    (void)user;
    for (size_t i = 0; i < nreadings; i++) {
        if (readings[i].address != address || readings[i].len != len)
            continue;
        memcpy(buf, readings[i].bytes, len);
        return readings[i].n;
    }
    if (!recording || nreadings == READS_MAX || len > sizeof(readings[0].bytes))
        return -1;
    struct reading *r = &readings[nreadings++];
    r->address = address;
    r->len = len;
    r->n = process_read(&process, address, r->bytes, len);
    memcpy(buf, r->bytes, len);
    return r->n;
}

static const struct clp_code_source source = {.find = find, .read = read_code};

static void record(pid_t tid)
{
    struct clp_walk_result r;
    struct recorded *rec = &recorded[nrecorded];
    rec->in = (struct clp_walk_input){0};
    process_refresh(&process);
    if (!trace_regs(tid, &rec->in.regs))
        return;
    uint64_t rsp = rec->in.regs.r[CLP_REG_RSP];
    const struct mapping *m = process_mapping(&process, rsp);
    size_t len = m ? CLP_MIN(m->end - rsp, (uint64_t)STACK_MAX) : 0;
    rec->stack = len ? malloc(len) : NULL;
    if (!rec->stack || process_read(&process, rsp, rec->stack, len) != (int64_t)len) {
        free(rec->stack);
        return;
    }
    rec->in.stack = (struct clp_stack_view){rec->stack, rsp, rsp + len};
    rec->in.stack_top = m->end;
    clp_walk(&source, &state, &rec->in, frames, CLP_WALK_FRAMES_MAX, &r);
    if (r.flags & (CLP_WALK_INCOMPLETE | CLP_WALK_TRUNCATED))
        free(rec->stack);
    else
        nrecorded++;
}

static void record_program(pid_t pid, size_t wanted, time_t deadline)
{
    pid_t tids[TRACE_THREADS_MAX];
    while (nrecorded < wanted && time(NULL) < deadline && kill(pid, 0) == 0) {
        size_t n = trace_threads(pid, tids);
        for (size_t i = 0; i < n && nrecorded < wanted; i++) {
            int signal;
            if (!trace_running(pid, tids[i]) || !trace_stop(tids[i], &signal))
                continue;
            record(tids[i]);
            ptrace(PTRACE_DETACH, tids[i], 0, signal);
            struct timespec nap = {0, rand() % 300000};
            nanosleep(&nap, NULL);
        }
    }
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * CLP_NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

/* CPU time of one round over all stacks, in nanoseconds a frame. */
static double one_round(unsigned long *ret_frames)
{
    struct clp_walk_result r;
    unsigned long n = 0;
    uint64_t before = now_ns();
    for (size_t i = 0; i < nrecorded; i++) {
        clp_walk(&source, &state, &recorded[i].in, frames, CLP_WALK_FRAMES_MAX, &r);
        n += r.count;
    }
    uint64_t spent = now_ns() - before;
    *ret_frames = n;
    return n ? (double)spent / (double)n : 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int measure(void)
{
    double ns[ROUNDS];
    unsigned long n = 0;
    recording = false;
    for (int i = 0; i < ROUNDS; i++)
        ns[i] = one_round(&n);
    qsort(ns, ROUNDS, sizeof(ns[0]), by_value);
    double median = ns[ROUNDS / 2];
    printf("unwind: %.1f ns a frame (median of %d rounds; best %.1f, worst %.1f), %zu stacks, "
           "%.1f frames each, at most %.0f wanted\n",
           median, ROUNDS, ns[0], ns[ROUNDS - 1], nrecorded, (double)n / (double)nrecorded,
           LIMIT_NS);
    return median <= LIMIT_NS ? 0 : 1;
}

int main(int argc, char **argv)
{
    char line[4096];
    size_t wanted = 500;
    int at = 1;
    if (argc > 2 && strcmp(argv[1], "-n") == 0) {
        wanted = (size_t)atol(argv[2]);
        wanted = CLP_MIN(wanted, (size_t)STACKS_MAX);
        at = 3;
    }
    if (at >= argc) {
        fprintf(stderr, "usage: bench-unwind [-n STACKS] PROGRAM MODE [OPTION]...\n");
        return 2;
    }
    answers = calloc(ANSWERS, sizeof(*answers));
    readings = calloc(READS_MAX, sizeof(*readings));
    struct child c = trace_start(argv + at);
    if (!answers || !readings || !trace_read_line(c.from, line, sizeof(line)))
        return 2;
    trace_say(c.to, "begin\n");
    (void)trace_read_line(c.from, line, sizeof(line));
    process_open(&process, c.pid);
    recording = true;
    record_program(c.pid, wanted, time(NULL) + 60);
    kill(c.pid, SIGKILL);
    waitpid(c.pid, NULL, 0);
    int rc = nrecorded > 0 ? measure() : 1;
    snprintf(line, sizeof(line), "/tmp/perf-%d.map", c.pid);
    unlink(line);
    return rc;
}
