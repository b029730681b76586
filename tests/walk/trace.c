#include "tests/walk/trace.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the program ---- */

struct child trace_start(char **argv)
{
    int in[2], out[2];
    if (pipe(in) < 0 || pipe(out) < 0)
        abort();
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        close(out[0]);
        setenv("DOTNET_PerfMapEnabled", "1", 1);
        setenv("DOTNET_PerfMapShowOptimizationTiers", "1", 1);
        execv(argv[0], argv);
        perror(argv[0]);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    return (struct child){.pid = pid, .to = in[1], .from = out[0]};
}

bool trace_read_line(int fd, char *line, size_t cap)
{
    size_t n = 0;
    while (n + 1 < cap && read(fd, line + n, 1) == 1)
        if (line[n++] == '\n')
            break;
    line[n] = 0;
    return n > 0;
}

void trace_say(int fd, const char *line)
{
    if (write(fd, line, strlen(line)) < 0)
        perror("write to the program");
}

/* ---- one thread ---- */

bool trace_stop(pid_t tid, int *ret_signal)
{
    int status;
    *ret_signal = 0;
    if (ptrace(PTRACE_SEIZE, tid, 0, 0) < 0)
        return false;
    if (ptrace(PTRACE_INTERRUPT, tid, 0, 0) < 0 || waitpid(tid, &status, __WALL) != tid)
        return false;
    if (!WIFSTOPPED(status))
        return false;
    if (status >> 16 == 0) /* about to take a signal: hand it on */
        *ret_signal = WSTOPSIG(status);
    return true;
}

static struct clp_regs take_regs(const struct user_regs_struct *u)
{
    return (struct clp_regs){.r = {[CLP_REG_RAX] = u->rax,
                                   [CLP_REG_RDX] = u->rdx,
                                   [CLP_REG_RCX] = u->rcx,
                                   [CLP_REG_RBX] = u->rbx,
                                   [CLP_REG_RSI] = u->rsi,
                                   [CLP_REG_RDI] = u->rdi,
                                   [CLP_REG_RBP] = u->rbp,
                                   [CLP_REG_RSP] = u->rsp,
                                   [CLP_REG_R8] = u->r8,
                                   [CLP_REG_R9] = u->r9,
                                   [CLP_REG_R10] = u->r10,
                                   [CLP_REG_R11] = u->r11,
                                   [CLP_REG_R12] = u->r12,
                                   [CLP_REG_R13] = u->r13,
                                   [CLP_REG_R14] = u->r14,
                                   [CLP_REG_R15] = u->r15,
                                   [CLP_REG_RIP] = u->rip}};
}

bool trace_regs(pid_t tid, struct clp_regs *ret)
{
    struct user_regs_struct u;
    if (ptrace(PTRACE_GETREGS, tid, 0, &u) < 0)
        return false;
    *ret = take_regs(&u);
    return true;
}

size_t trace_threads(pid_t pid, pid_t out[TRACE_THREADS_MAX])
{
    char path[64];
    size_t n = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d)) && n < TRACE_THREADS_MAX;)
        if (e->d_name[0] != '.')
            out[n++] = atoi(e->d_name);
    if (d)
        closedir(d);
    return n;
}

/* Mostly threads that run, so that leaves fall everywhere. */
bool trace_running(pid_t pid, pid_t tid)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    size_t n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = 0;
    char *end = strrchr(text, ')');
    return end && end[1] == ' ' && end[2] == 'R';
}
