/* wait-truth: starts a test program whose threads wait in many ways and holds two walks of each
 * against each other: one from what /proc/PID/task/TID/syscall tells, stack pointer and program
 * counter alone, and one from all registers as ptrace has them.
 *
 *   wait-truth [-v] [-n ROUNDS] [-k KINDS] PROGRAM [ARGUMENT]...
 *
 * Threads of one name are a kind. Exit code 0: at least KINDS kinds were seen, and of each at least
 * 99.5 % of the walks were equal, frame by frame. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sampler/inproc/wall_shot.h"
#include "tests/walk/process.h"
#include "tests/walk/trace.h"

#define STACK_MAX (8u << 20)
#define KINDS_MAX 256
#define LEAST_EQUAL 0.995

struct kind {
    char name[32];
    unsigned long seen, equal, complete, truth_complete;
};

static struct {
    struct process process;
    struct clp_walk_state state;
    struct kind kinds[KINDS_MAX];
    size_t count;
    uint8_t *stack;
    bool verbose;
    unsigned shown;
} run;

static struct clp_walk_frame alone[CLP_WALK_FRAMES_MAX], truth[CLP_WALK_FRAMES_MAX];

static bool read_text(pid_t pid, pid_t tid, const char *file, char *buf, size_t cap, size_t *ret)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", pid, tid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, buf, cap - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    buf[n] = '\0';
    *ret = (size_t)n;
    return true;
}

static struct kind *kind_of(pid_t pid, pid_t tid)
{
    char name[32];
    size_t len;
    if (!read_text(pid, tid, "comm", name, sizeof(name), &len))
        return NULL;
    name[strcspn(name, "\n")] = '\0';
    for (size_t i = 0; i < run.count; i++)
        if (strcmp(run.kinds[i].name, name) == 0)
            return &run.kinds[i];
    if (run.count == KINDS_MAX)
        return NULL;
    struct kind *k = &run.kinds[run.count++];
    snprintf(k->name, sizeof(k->name), "%s", name);
    return k;
}

static bool take_stack(struct clp_walk_input *in)
{
    uint64_t rsp = in->regs.r[CLP_REG_RSP];
    const struct mapping *m = process_mapping(&run.process, rsp);
    if (!m)
        return false;
    int64_t n = process_read(&run.process, rsp, run.stack, CLP_MIN(m->end - rsp, STACK_MAX));
    in->stack = (struct clp_stack_view){run.stack, rsp, rsp + (uint64_t)CLP_MAX(n, 0)};
    in->stack_top = m->end;
    return n > 0;
}

static bool read_alone(pid_t pid, pid_t tid, struct clp_walk_input *in)
{
    char text[256];
    size_t len;
    int32_t call;
    uint64_t sp, pc;
    *in = (struct clp_walk_input){0};
    if (!read_text(pid, tid, "syscall", text, sizeof(text), &len) ||
        clp_wall_shot_parse(text, len, &call, &sp, &pc) < 0)
        return false;
    in->regs.unknown = ((1u << CLP_REG_COUNT) - 1) & ~(1u << CLP_REG_RIP | 1u << CLP_REG_RSP);
    in->regs.r[CLP_REG_RIP] = pc;
    in->regs.r[CLP_REG_RSP] = sp;
    return true;
}

static void print_walk(const char *what, const struct clp_walk_frame *f,
                       const struct clp_walk_result *r)
{
    char name[600];
    printf("  %s: flags %x\n", what, r->flags);
    for (uint32_t i = 0; i < r->count && i < 40; i++) {
        process_name(&run.process, &f[i], name, sizeof(name));
        printf("   %2u %d %016lx cfa %lx %s\n", i, f[i].kind, f[i].address, f[i].cfa, name);
    }
}

static bool equal(const struct clp_walk_result *a, const struct clp_walk_result *b)
{
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (alone[i].address != truth[i].address || alone[i].kind != truth[i].kind ||
            alone[i].cfa != truth[i].cfa)
            return false;
    return true;
}

static void compare(struct kind *k, const struct clp_walk_input *by_file,
                    const struct clp_regs *regs)
{
    struct clp_walk_result a, b;
    struct clp_walk_input in = *by_file;
    if (!take_stack(&in))
        return;
    clp_walk(&run.process.source, &run.state, &in, alone, CLP_WALK_FRAMES_MAX, &a);
    in.regs = *regs;
    clp_walk(&run.process.source, &run.state, &in, truth, CLP_WALK_FRAMES_MAX, &b);
    k->seen++;
    k->complete += !(a.flags & (CLP_WALK_INCOMPLETE | CLP_WALK_TRUNCATED));
    k->truth_complete += !(b.flags & (CLP_WALK_INCOMPLETE | CLP_WALK_TRUNCATED));
    if (equal(&a, &b)) {
        k->equal++;
        return;
    }
    if (run.verbose && run.shown++ < 30) {
        printf("--- %s\n", k->name);
        print_walk("alone", alone, &a);
        print_walk("truth", truth, &b);
    }
}

static void examine(pid_t pid, pid_t tid)
{
    struct clp_walk_input in;
    struct clp_regs regs;
    int signal;
    struct kind *k = kind_of(pid, tid);
    if (!k || !read_alone(pid, tid, &in) || !trace_stop(tid, &signal))
        return;
    /* It may have run between the two: then there is nothing to compare. */
    bool same = trace_regs(tid, &regs) && regs.r[CLP_REG_RSP] == in.regs.r[CLP_REG_RSP] &&
                regs.r[CLP_REG_RIP] == in.regs.r[CLP_REG_RIP];
    if (same)
        compare(k, &in, &regs);
    ptrace(PTRACE_DETACH, tid, 0, signal);
}

static void visit_all(pid_t pid)
{
    pid_t tids[TRACE_THREADS_MAX];
    size_t n = trace_threads(pid, tids);
    process_refresh(&run.process);
    for (size_t i = 0; i < n; i++)
        if (!trace_running(pid, tids[i]))
            examine(pid, tids[i]);
}

static int report(size_t wanted)
{
    bool good = run.count >= wanted;
    unsigned long seen = 0, same = 0;
    for (size_t i = 0; i < run.count; i++) {
        const struct kind *k = &run.kinds[i];
        bool ok = k->seen == 0 || (double)k->equal >= LEAST_EQUAL * (double)k->seen;
        seen += k->seen;
        same += k->equal;
        good &= ok;
        printf("%-16s %4lu of %4lu equal, %4lu complete (truth %lu)%s\n", k->name, k->equal,
               k->seen, k->complete, k->truth_complete, ok ? "" : "  <--");
    }
    printf("kinds %zu walks %lu equal %lu\n", run.count, seen, same);
    return good && seen > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    unsigned long rounds = 20;
    size_t wanted = 1;
    char line[16384];
    int at = 1;
    for (; at < argc && argv[at][0] == '-'; at++) {
        if (strcmp(argv[at], "-v") == 0)
            run.verbose = true;
        else if (strcmp(argv[at], "-n") == 0 && at + 1 < argc)
            rounds = strtoul(argv[++at], NULL, 10);
        else if (strcmp(argv[at], "-k") == 0 && at + 1 < argc)
            wanted = strtoul(argv[++at], NULL, 10);
    }
    if (at >= argc) {
        fprintf(stderr, "usage: wait-truth [-v] [-n ROUNDS] [-k KINDS] PROGRAM [ARGUMENT]...\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    run.stack = malloc(STACK_MAX);
    struct child c = trace_start(argv + at);
    if (!run.stack || !trace_read_line(c.from, line, sizeof(line)))
        return 2;
    trace_say(c.to, "begin\n");
    (void)trace_read_line(c.from, line, sizeof(line));
    process_open(&run.process, c.pid);
    for (unsigned long i = 0; i < rounds && kill(c.pid, 0) == 0; i++) {
        visit_all(c.pid);
        struct timespec nap = {0, 20000000};
        nanosleep(&nap, NULL); /* interrupted calls are made again */
    }
    trace_say(c.to, "end\n"); /* it ends its children */
    (void)trace_read_line(c.from, line, sizeof(line));
    kill(c.pid, SIGKILL);
    waitpid(c.pid, NULL, 0);
    int rc = report(wanted);
    process_close(&run.process);
    snprintf(line, sizeof(line), "/tmp/perf-%d.map", c.pid);
    unlink(line);
    free(run.stack);
    return rc;
}
