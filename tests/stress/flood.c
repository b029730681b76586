/* Sends directed sampling signals to every thread of a process that has a sampling timer: what the
 * shipped library refuses and its test build takes, so that the handler is entered at any moment
 * and far more often than a timer could do it.
 *
 * usage: flood PID SIGNALS-PER-SECOND-AND-THREAD
 *
 * The tags of the timers are read from /proc/PID/timers, where the kernel shows for each timer the
 * value that its signal carries and the thread it goes to.  Runs until it is ended or the process
 * has gone; prints the number of signals sent. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 512
#define ROUND_NS 1000000L /* of signals; the list of timers is read every 64th */

struct goal {
    int signal;
    pid_t tid;
    uint64_t value;
};

static struct goal goals[THREADS_MAX];
static size_t goal_count;
static volatile sig_atomic_t stop;

static void on_end(int sig)
{
    (void)sig;
    stop = 1;
}

/* Entries look like "ID: 1", "signal: 34/c1b7000200000001", "notify: signal/tid.4711", ... */
static int read_timers(pid_t pid)
{
    char path[64], line[256];
    snprintf(path, sizeof(path), "/proc/%d/timers", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return -errno;
    struct goal g = {0};
    goal_count = 0;
    while (fgets(line, sizeof(line), f) && goal_count < THREADS_MAX) {
        if (sscanf(line, "signal: %d/%" SCNx64, &g.signal, &g.value) == 2)
            continue;
        if (sscanf(line, "notify: signal/tid.%d", &g.tid) == 1)
            goals[goal_count++] = g;
    }
    fclose(f);
    return 0;
}

/* -ESRCH when the thread has gone; any other failure is the caller's setup. */
static int send_one(pid_t pid, const struct goal *g)
{
    siginfo_t info = {0};
    info.si_signo = g->signal;
    info.si_code = SI_QUEUE;
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value.sival_ptr = (void *)(uintptr_t)g->value;
    return syscall(SYS_rt_tgsigqueueinfo, pid, g->tid, g->signal, &info) < 0 ? -errno : 0;
}

static uint64_t send_round(pid_t pid, unsigned each)
{
    uint64_t sent = 0;
    for (size_t i = 0; i < goal_count; i++) {
        for (unsigned n = 0; n < each; n++)
            sent += send_one(pid, &goals[i]) == 0;
    }
    return sent;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: flood PID SIGNALS-PER-SECOND-AND-THREAD\n");
        return 2;
    }
    pid_t pid = atoi(argv[1]);
    double per_round = atof(argv[2]) * ROUND_NS / 1e9, due = 0;
    uint64_t sent = 0;
    signal(SIGTERM, on_end);
    signal(SIGINT, on_end);
    for (unsigned round = 0; !stop; round++) {
        if (round % 64 == 0 && read_timers(pid) < 0)
            break;
        due += per_round;
        sent += send_round(pid, (unsigned)due);
        due -= (unsigned)due;
        nanosleep(&(struct timespec){.tv_nsec = ROUND_NS}, NULL);
    }
    printf("%" PRIu64 "\n", sent);
    return 0;
}
