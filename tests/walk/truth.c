/* walk-truth: starts a test program, stops its threads at random instants from outside (ptrace),
 * walks what it finds, and holds the walks against what the program is known to do.
 *
 *   walk-truth [-v] [-u] [-p] [-c CHAINS] [-s STEPS] [-t SECONDS] [-n SAMPLES] PROGRAM
 * [ARGUMENT]...
 *
 * -s: also step each thread that many instructions at each visit (steps.h).
 * -t: take as many samples as come in that time, at most -n; none at all is a failure.
 * -c: that many stacks must hold a known chain.
 * -u: libraries come and go; -p: a plain program, without the test program's commands.
 * Exit code 0: enough walks ended at a thread's root and every chain was exact. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/walk/chains.h"
#include "tests/walk/process.h"
#include "tests/walk/steps.h"
#include "tests/walk/trace.h"

#define STACK_MAX (8u << 20)
#define LEAST_COMPLETE 0.999

struct hijack_place { /* where a thread's runtime object keeps {true return address, slot} */
    pid_t tid;
    uint64_t at;
};

struct run {
    struct process process;
    struct clp_walk_state state;
    struct chains chains;
    struct hijack_place hijack[TRACE_THREADS_MAX];
    size_t nhijack;
    uint8_t *stack;
    bool verbose;
    unsigned long samples, complete, incomplete, truncated, repaired, hijacked_caller, gc_wait, osr;
    unsigned long frames, no_stack, other_stack;
    time_t deadline;
    unsigned long stepping; /* instructions to step at each visit */
    unsigned long steps, steps_wrong, steps_incomplete;
    unsigned shown;
    unsigned long chains_wanted;
};

static struct run run;

/* ---- one thread ---- */

static bool take_stack(struct clp_walk_input *in)
{
    uint64_t rsp = in->regs.r[CLP_REG_RSP];
    const struct mapping *m = process_mapping(&run.process, rsp);
    if (!m)
        return false;
    size_t len = CLP_MIN(m->end - rsp, (uint64_t)STACK_MAX);
    int64_t n = process_read(&run.process, rsp, run.stack, len);
    if (n <= 0)
        return false;
    in->stack = (struct clp_stack_view){run.stack, rsp, rsp + (uint64_t)n};
    in->stack_top = m->end;
    return true;
}

static void take_hijack(pid_t tid, struct clp_walk_input *in)
{
    uint64_t pair[2];
    for (size_t i = 0; i < run.nhijack; i++) {
        if (run.hijack[i].tid != tid ||
            process_read(&run.process, run.hijack[i].at, pair, sizeof(pair)) != sizeof(pair))
            continue;
        in->hijacked_return = pair[0];
        in->hijacked_slot = pair[1];
    }
}

/* The thread is hijacked at `slot`: somewhere on the heap lies {true address, slot}. */
static void learn_hijack(pid_t tid, uint64_t slot)
{
    struct process *p = &run.process;
    for (size_t i = 0; i < p->nmaps && run.nhijack < TRACE_THREADS_MAX; i++) {
        const struct mapping *m = &p->maps[i];
        size_t len = m->end - m->start;
        if (!m->write || m->exec || len > (64u << 20) || (slot >= m->start && slot < m->end))
            continue;
        uint64_t *words = malloc(len);
        int64_t n = words ? process_read(p, m->start, words, len) : 0;
        for (int64_t w = 1; w < n / 8; w++) {
            struct clp_code code;
            if (words[w] != slot || words[w - 1] < 4096)
                continue;
            p->source.find(p, words[w - 1] - 1, 0, &code);
            if (code.kind != CLP_CODE_MANAGED && code.kind != CLP_CODE_NATIVE)
                continue;
            run.hijack[run.nhijack++] =
                (struct hijack_place){tid, m->start + 8 * (uint64_t)(w - 1)};
            break;
        }
        free(words);
    }
}

static void show_next(const struct clp_walk_input *in, uint64_t cfa)
{
    uint64_t next = 0;
    if (!cfa || !clp_stack_u64(&in->stack, cfa - 8, &next))
        return;
    const struct mapping *m = process_mapping(&run.process, next);
    printf("   then %lx %s%s\n", next, m && m->exec ? "executable " : "", m ? m->path : "unmapped");
}

static void show(const char *why, const struct clp_walk_input *in,
                 const struct clp_walk_frame *frames, const struct clp_walk_result *r)
{
    char name[600];
    if (!run.verbose && run.shown >= 20)
        return;
    run.shown++;
    printf("--- %s: flags %x, rip %lx rsp %lx rbp %lx\n", why, r->flags, in->regs.r[CLP_REG_RIP],
           in->regs.r[CLP_REG_RSP], in->regs.r[CLP_REG_RBP]);
    for (uint32_t i = 0; i < r->count && i < 60; i++) {
        process_name(&run.process, &frames[i], name, sizeof(name));
        printf("   %2u %d %016lx cfa %lx %s\n", i, frames[i].kind, frames[i].address, frames[i].cfa,
               name);
    }
    if (r->count)
        show_next(in, frames[r->count - 1].cfa);
}

/* A signal handler on an alternate stack: the interrupted one was not copied (nor would it be by
 * the library, which keeps such samples as leaf only). */
static bool on_other_stack(const struct clp_walk_input *in, const struct clp_walk_frame *frames,
                           const struct clp_walk_result *r)
{
    char name[600];
    uint64_t rsp;
    if (r->count < 2 || !(r->flags & CLP_WALK_INCOMPLETE))
        return false;
    process_name(&run.process, &frames[r->count - 1], name, sizeof(name));
    uint64_t ucontext = frames[r->count - 2].cfa;
    return strncmp(name, "libc.so", 7) == 0 && clp_stack_u64(&in->stack, ucontext + 160, &rsp) &&
           (rsp < in->stack.low || rsp >= in->stack.high);
}

static void count(const struct clp_walk_result *r, const struct clp_walk_frame *frames)
{
    bool done = !(r->flags & (CLP_WALK_INCOMPLETE | CLP_WALK_TRUNCATED));
    run.samples++;
    run.frames += r->count;
    run.complete += done;
    run.incomplete += (r->flags & CLP_WALK_INCOMPLETE) != 0;
    run.truncated += (r->flags & CLP_WALK_TRUNCATED) != 0;
    run.repaired += (r->flags & CLP_WALK_REPAIRED) != 0;
    run.gc_wait += (r->flags & CLP_WALK_GC_WAIT) != 0;
    run.osr += (r->flags & CLP_WALK_OSR) != 0;
    for (uint32_t i = 0; i < r->count; i++)
        run.hijacked_caller += frames[i].kind == CLP_WALK_HIJACKED_CALLER;
}

static void judge(const struct clp_walk_input *in, const struct clp_walk_frame *frames,
                  const struct clp_walk_result *r)
{
    static char names[CLP_WALK_FRAMES_MAX][200];
    const char *wrong;
    if (r->flags & (CLP_WALK_INCOMPLETE | CLP_WALK_TRUNCATED))
        show("incomplete", in, frames, r);
    for (uint32_t i = 0; i < r->count; i++)
        process_name(&run.process, &frames[i], names[i], sizeof(names[i]));
    if ((wrong = chains_check(&run.chains, names, r->count)))
        show(wrong, in, frames, r);
}

/* Where a thread keeps its pair is learnt from the first walk that needs it. */
static bool learn_from(pid_t tid, const struct clp_walk_input *in,
                       const struct clp_walk_frame *frames, const struct clp_walk_result *r)
{
    for (uint32_t i = 0; i + 1 < r->count; i++) {
        if (frames[i + 1].kind != CLP_WALK_HIJACKED_CALLER || run.nhijack == TRACE_THREADS_MAX)
            continue;
        for (uint64_t s = in->regs.r[CLP_REG_RSP]; s < frames[i].cfa; s += 8) {
            uint64_t v;
            if (clp_stack_u64(&in->stack, s, &v) && v == run.state.hijack_stub)
                learn_hijack(tid, s);
        }
        return true;
    }
    return false;
}

static bool walk_thread(pid_t tid, struct clp_walk_input *in, struct clp_walk_frame *frames,
                        struct clp_walk_result *ret)
{
    *in = (struct clp_walk_input){0};
    if (!trace_regs(tid, &in->regs))
        return false;
    if (!take_stack(in)) {
        run.no_stack++;
        return false;
    }
    take_hijack(tid, in);
    clp_walk(&run.process.source, &run.state, in, frames, CLP_WALK_FRAMES_MAX, ret);
    if (learn_from(tid, in, frames, ret)) {
        take_hijack(tid, in);
        clp_walk(&run.process.source, &run.state, in, frames, CLP_WALK_FRAMES_MAX, ret);
    }
    return true;
}

static struct clp_walk_frame frames[CLP_WALK_FRAMES_MAX];

static void examine(pid_t tid)
{
    struct clp_walk_input in;
    struct clp_walk_result r;
    process_refresh(&run.process);
    if (!walk_thread(tid, &in, frames, &r))
        return;
    if (on_other_stack(&in, frames, &r)) {
        run.other_stack++;
        return;
    }
    count(&r, frames);
    judge(&in, frames, &r);
}

/* A busy machine makes each step as long as a scheduler's round. */
static bool in_time(void)
{
    return run.deadline == 0 || time(NULL) < run.deadline;
}

/* A system call may sleep for ever. */
static bool wait_step(pid_t tid, int *status)
{
    struct timespec nap = {0, 100000};
    for (int i = 0; i < 1000; i++) {
        if (waitpid(tid, status, __WALL | WNOHANG) == tid)
            return true;
        if (i > 20)
            nanosleep(&nap, NULL);
        else
            sched_yield();
    }
    ptrace(PTRACE_INTERRUPT, tid, 0, 0);
    (void)waitpid(tid, status, __WALL);
    return false;
}

/* One instruction; a signal that comes is delivered, and then nothing is known (false). */
static bool step_once(pid_t tid, int *signal, bool *asleep)
{
    int status;
    int deliver = *signal;
    *signal = 0;
    if (ptrace(PTRACE_SINGLESTEP, tid, 0, deliver) < 0 || !wait_step(tid, &status)) {
        *asleep = true;
        return false;
    }
    int got = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
    bool quiet = deliver == 0 && got == SIGTRAP && status >> 16 == 0;
    *signal = got == SIGTRAP ? 0 : got;
    return quiet;
}

static void step_thread(pid_t tid, unsigned long steps, int *signal)
{
    static struct callers before, after;
    struct clp_walk_input in;
    struct clp_walk_result r;
    bool known = false, asleep = false;
    for (unsigned long i = 0; i < steps && !asleep && in_time(); i++) {
        if (i % 64 == 0)
            process_refresh(&run.process);
        if (!known && !walk_thread(tid, &in, frames, &r))
            return;
        if (!known)
            callers_of(frames, &r, &before);
        enum step_kind kind = step_kind_at(&run.process, in.regs.r[CLP_REG_RIP]);
        bool sigreturn = kind == STEP_SYSCALL && in.regs.r[CLP_REG_RAX] == SYS_rt_sigreturn;
        known = step_once(tid, signal, &asleep) && !sigreturn;
        if (!known)
            continue;
        if (!walk_thread(tid, &in, frames, &r))
            return;
        callers_of(frames, &r, &after);
        run.steps++;
        if (!callers_follow(&before, kind, &after)) {
            bool said = (before.flags | after.flags) & (CLP_WALK_INCOMPLETE | CLP_WALK_TRUNCATED);
            run.steps_wrong += !said;
            run.steps_incomplete += said;
            show(said ? "step, said incomplete" : "step", &in, frames, &r);
            printf("   before: leaf %lx, %u callers (%lx %lx), kind %d\n", before.leaf,
                   before.count, before.address[0], before.address[1], kind);
        }
        before = after;
    }
}

/* ---- all threads ---- */

static void sample(pid_t pid, unsigned long wanted)
{
    pid_t tids[TRACE_THREADS_MAX];
    while (run.samples < wanted && in_time() && kill(pid, 0) == 0) {
        size_t n = trace_threads(pid, tids);
        int signal;
        for (size_t i = 0; i < n; i++) {
            bool running = trace_running(pid, tids[i]);
            if (!running && (run.stepping || rand() % 64 != 0))
                continue;
            if (!trace_stop(tids[i], &signal))
                continue;
            examine(tids[i]);
            if (run.stepping)
                step_thread(tids[i], run.stepping, &signal);
            ptrace(PTRACE_DETACH, tids[i], 0, signal);
            struct timespec nap = {0, rand() % 300000};
            nanosleep(&nap, NULL);
        }
    }
}

static int report(void)
{
    double complete = run.samples ? (double)run.complete / (double)run.samples : 0;
    printf("samples %lu frames %lu complete %.4f%% incomplete %lu truncated %lu repaired %lu "
           "hijacked-caller %lu gc-wait %lu osr %lu no-stack %lu other-stack %lu\n",
           run.samples, run.frames, complete * 100, run.incomplete, run.truncated, run.repaired,
           run.hijacked_caller, run.gc_wait, run.osr, run.no_stack, run.other_stack);
    if (run.steps)
        printf("steps %lu wrong %lu incomplete %lu\n", run.steps, run.steps_wrong,
               run.steps_incomplete);
    bool chains = chains_report(&run.chains, run.chains_wanted);
    return complete >= LEAST_COMPLETE && chains && run.steps_wrong == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    unsigned long wanted = 3000;
    long seconds = 0;
    bool unstable = false, plain = false;
    char line[4096];
    int at = 1;
    for (; at < argc && argv[at][0] == '-'; at++) {
        if (strcmp(argv[at], "-v") == 0)
            run.verbose = true;
        else if (strcmp(argv[at], "-u") == 0)
            unstable = true;
        else if (strcmp(argv[at], "-p") == 0)
            plain = true;
        else if (strcmp(argv[at], "-t") == 0 && at + 1 < argc)
            seconds = atol(argv[++at]);
        else if (strcmp(argv[at], "-c") == 0 && at + 1 < argc)
            run.chains_wanted = strtoul(argv[++at], NULL, 10);
        else if (strcmp(argv[at], "-s") == 0 && at + 1 < argc)
            run.stepping = strtoul(argv[++at], NULL, 10);
        else if (strcmp(argv[at], "-n") == 0 && at + 1 < argc)
            wanted = strtoul(argv[++at], NULL, 10);
    }
    if (at >= argc) {
        fprintf(stderr,
                "usage: walk-truth [-v] [-u] [-p] [-c CHAINS] [-s STEPS] [-t SECONDS] [-n SAMPLES] "
                "PROGRAM [ARGUMENT]...\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    run.stack = malloc(STACK_MAX);
    struct child c = trace_start(argv + at);
    if (!run.stack || (!plain && !trace_read_line(c.from, line, sizeof(line))))
        return 2;
    if (plain)
        sleep(1);
    else
        trace_say(c.to, "begin\n");
    if (!plain)
        (void)trace_read_line(c.from, line, sizeof(line));
    process_open(&run.process, c.pid);
    run.process.unstable_maps = unstable;
    run.deadline = seconds ? time(NULL) + seconds : 0;
    sample(c.pid, wanted);
    kill(c.pid, SIGKILL);
    waitpid(c.pid, NULL, 0);
    int rc = report();
    process_close(&run.process);
    snprintf(line, sizeof(line), "/tmp/perf-%d.map", c.pid);
    unlink(line);
    free(run.stack);
    return rc;
}
