/* clrpulse run: starts a command with the library in it, records it from its first instruction,
 * passes signals and the exit code on. */
#include "agent/cli/cli.h"

#include "agent/cli/recording.h"
#include "agent/library.h"
#include "base/cleanup.h"
#include "base/strbuf.h"
#include "wire/clsid.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENVIRONMENT_MAX_BYTES 65536
#define EXIT_NOT_EXECUTABLE 126 /* as shells have it */
#define EXIT_NOT_FOUND 127

static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH};

struct run {
    const struct clp_cli *cli;
    char announcement[CLP_ANNOUNCEMENT_BYTES];
    char *library;
    sigset_t mask; /* what was blocked before */
    pid_t child;
    int go_fd;    /* the child starts its command when this says so */
    int error_fd; /* the errno of an exec that failed; else its end */
    bool ended;
    int status; /* of waitpid */
    struct clp_recording recording;
};

/* ---- signals ------------------------------------------------------------------------------- */

static int block_signals(struct run *r)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < CLP_ARRAY_LEN(passed_on); i++)
        sigaddset(&set, passed_on[i]);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, as some callers leave it, no child's end is told */
    if (sigprocmask(SIG_BLOCK, &set, &r->mask) < 0)
        return -errno;
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

static void reap(struct run *r)
{
    if (!r->ended && waitpid(r->child, &r->status, WNOHANG) == r->child)
        r->ended = true;
}

/* What a terminal sends goes to the whole group, so the command has it already. */
static void take_signals(void *context)
{
    struct run *r = context;
    struct signalfd_siginfo s;
    while (read(r->recording.stop_fd, &s, sizeof(s)) == (ssize_t)sizeof(s))
        if (s.ssi_signo != SIGCHLD && s.ssi_code != SI_KERNEL && !r->ended)
            (void)kill(r->child, (int)s.ssi_signo);
    reap(r);
}

static void wait_for_end(struct run *r)
{
    struct pollfd p = {.fd = r->recording.stop_fd, .events = POLLIN};
    for (take_signals(r); !r->ended; take_signals(r))
        (void)poll(&p, 1, 1000);
}

/* ---- the command --------------------------------------------------------------------------- */

/* Beside a notification profiler that is there already. */
static int set_environment(const struct run *r)
{
    const char *others = getenv("CORECLR_NOTIFICATION_PROFILERS");
    CLP_CLEANUP(clp_strbuf_done) struct clp_strbuf b;
    clp_strbuf_init(&b, ENVIRONMENT_MAX_BYTES);
    if (others && *others)
        clp_strbuf_printf(&b, "%s%s", others, others[strlen(others) - 1] == ';' ? "" : ";");
    clp_strbuf_printf(&b, "%s=" CLP_CLSID_TEXT ";", r->library);
    if (clp_strbuf_error(&b) < 0 || setenv("CORECLR_ENABLE_NOTIFICATION_PROFILERS", "1", 1) < 0 ||
        setenv("CORECLR_NOTIFICATION_PROFILERS", clp_strbuf_text(&b), 1) < 0 ||
        setenv("CLRPULSE_ATTACH", r->announcement, 1) < 0)
        return -ENOMEM;
    return 0;
}

static void exec_command(const struct run *r, int go_fd, int error_fd)
{
    char go;
    if (read(go_fd, &go, 1) != 1)
        _exit(0);
    int error = -set_environment(r);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &r->mask, NULL);
    if (error == 0) {
        (void)execvp(r->cli->arguments[0], r->cli->arguments);
        error = errno;
    }
    (void)!write(error_fd, &error, sizeof(error));
    _exit(error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

/* The child waits before its command: its number goes into names first. */
static int fork_child(struct run *r)
{
    int go[2], error[2];
    if (pipe2(go, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(error, O_CLOEXEC) < 0) {
        int e = -errno;
        close(go[0]);
        close(go[1]);
        return e;
    }
    r->child = fork();
    int e = r->child < 0 ? -errno : 0;
    if (r->child == 0) {
        close(go[1]);
        exec_command(r, go[0], error[1]);
    }
    close(go[0]);
    close(error[1]);
    r->go_fd = go[1];
    r->error_fd = error[0];
    return e;
}

/* 0 once the command runs. */
static int let_it_start(struct run *r, struct clp_fault *f)
{
    int error = 0;
    if (write(r->go_fd, "", 1) != 1)
        return clp_fault_set(f, -errno, "cannot start %.200s: %s", r->cli->arguments[0],
                             strerror(errno));
    if (read(r->error_fd, &error, sizeof(error)) != (ssize_t)sizeof(error))
        return 0;
    return clp_fault_set(f, -error, "cannot start %.200s: %s", r->cli->arguments[0],
                         strerror(error));
}

/* ---- all of it ----------------------------------------------------------------------------- */

static int prepare(struct run *r, struct clp_fault *f)
{
    struct clp_target_config c;
    r->recording.stop_fd = block_signals(r);
    if (r->recording.stop_fd < 0)
        return clp_fault_set(f, r->recording.stop_fd, "cannot set up signals");
    int e = clp_library_find(&r->library, f);
    if (e == 0)
        e = clp_recording_prepare(&r->recording, r->library, &c, f);
    if (e == 0)
        e = clp_target_announce(&c, &r->recording.target, r->announcement, f);
    if (e < 0)
        return e;
    e = fork_child(r);
    if (e < 0)
        return clp_fault_set(f, e, "cannot start a process: %s", strerror(-e));
    r->recording.pid = r->child;
    e = clp_recording_check_path(&r->recording, f);
    if (e == 0 && clp_session_watch(clp_target_session(r->recording.target), r->child) < 0)
        e = clp_fault_set(f, -ESRCH, "cannot watch process %d", r->child);
    return e;
}

/* The end of a process by a signal is passed on as such, without a core dump of our own. */
static int pass_on(const struct run *r)
{
    if (WIFEXITED(r->status))
        return WEXITSTATUS(r->status);
    int number = WTERMSIG(r->status);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    (void)signal(number, SIG_DFL);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
    (void)fflush(NULL);
    (void)raise(number);
    return 128 + number;
}

static void tell(const struct run *r, const struct clp_fault *f)
{
    const char *command = r->cli->arguments[0];
    if (f->error == -ESRCH && !r->recording.have_profile)
        clp_print_sentence("nothing was recorded: no .NET runtime that lets a profiler in was "
                           "started by %.200s",
                           command);
    else
        (void)clp_exit_fault(f);
}

static int record(struct run *r)
{
    struct clp_fault f = {0};
    int e = prepare(r, &f);
    if (e == 0) {
        e = let_it_start(r, &f);
        if (e < 0) {
            (void)clp_exit_fault(&f);
            return e == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
        }
    }
    if (e < 0) /* nothing has been started: the child ends when we do */
        return clp_exit_fault(&f);
    if (clp_recording_run(&r->recording, &f) < 0)
        tell(r, &f);
    wait_for_end(r);
    return pass_on(r);
}

int clp_command_run(const struct clp_cli *cli)
{
    struct run r = {
        .cli = cli,
        .go_fd = -1,
        .error_fd = -1,
        .recording = {.output = cli->run_output,
                      .whole_ns = cli->run_duration_ns ? cli->run_duration_ns : UINT64_MAX,
                      .types = cli->run_types ? cli->run_types : CLP_RECORDING_TYPES,
                      .split = cli->run_split,
                      .no_startup_hook = cli->run_no_startup_hook,
                      .stop_fd = -1,
                      .ends_with_target = true,
                      .at_step = take_signals},
    };
    r.recording.context = &r;
    if (!cli->arguments || !*cli->arguments) {
        fprintf(stderr, "clrpulse: run needs a command: clrpulse run -- dotnet app.dll\n");
        return CLP_EXIT_USE;
    }
    if (!clp_recording_take_idle(&r.recording, cli->run_idle))
        return CLP_EXIT_USE;
    int code = record(&r);
    clp_recording_done(&r.recording);
    clp_cleanup_fd(&r.go_fd);
    clp_cleanup_fd(&r.error_fd);
    clp_cleanup_fd(&r.recording.stop_fd);
    free(r.library);
    return code;
}
