#include "tests/unit/clp-cmocka.h"

#include "sampler/inproc/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void allows_all_without_a_filter(void **state)
{
    (void)state;
    clp_probe_run();
    for (int p = 0; p < CLP_PROBE_COUNT; p++)
        assert_int_equal(clp_probe_result((enum clp_probe)p), 0);
    clp_probe_again(); /* the same in a child */
    for (int p = 0; p < CLP_PROBE_COUNT; p++)
        assert_int_equal(clp_probe_result((enum clp_probe)p), 0);
}

static _Atomic int children_ended;
static void on_child(int sig)
{
    (void)sig;
    children_ended++;
}

/* The application sees no signal, no child, no descriptor less. */
static void the_application_sees_nothing(void **state)
{
    (void)state;
    struct sigaction a = {.sa_handler = on_child}, saved;
    sigset_t before, after;
    int fd = open("/dev/null", O_RDONLY);
    assert_int_equal(sigaction(SIGCHLD, &a, &saved), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    for (int i = 0; i < 20; i++)
        clp_probe_again();
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_memory_equal(&before, &after, 8); /* the kernel knows 64 signals */
    assert_int_equal(children_ended, 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    assert_true(fcntl(fd, F_GETFD) >= 0);
    assert_int_equal(sigaction(SIGCHLD, &saved, NULL), 0);
    close(fd);
    assert_int_equal(prctl(PR_GET_DUMPABLE), 1);
}

/* A filter that does `action` for each of the calls, and allows the rest. */
static int filter_calls(const int *calls, size_t n, uint32_t action)
{
    struct sock_filter code[32];
    size_t at = 0;
    code[at++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < n; i++) {
        code[at++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
    }
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog prog = {.len = (unsigned short)at, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0 ? -errno : 0;
}

struct filtered {
    int calls[4];
    size_t n;
    uint32_t action;
    int want[CLP_PROBE_COUNT];
};

static int probe_under(const struct filtered *f)
{
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    if (filter_calls(f->calls, f->n, f->action) < 0)
        return 100;
    for (int p = 0; p < CLP_PROBE_COUNT; p++)
        if (clp_probe_result((enum clp_probe)p) != f->want[p])
            return 1 + p;
    return 0;
}

/* In a process of its own that has not probed: the results must come from a filtered child. */
static void check_filter(const struct filtered *f)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(probe_under(f));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status))
        fail_msg("the process died of signal %d", WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void survives_filters_that_kill(void **state)
{
    (void)state;
    const uint32_t actions[] = {SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD,
                                SECCOMP_RET_TRAP};
    for (size_t i = 0; i < CLP_ARRAY_LEN(actions); i++) {
        check_filter(&(struct filtered){
            .calls = {SYS_process_vm_readv, SYS_close_range},
            .n = 2,
            .action = actions[i],
            .want = {[CLP_PROBE_VM_READV] = -EPERM, [CLP_PROBE_UNSHARE] = -EPERM}});
        check_filter(&(struct filtered){
            .calls = {SYS_timer_create, SYS_arch_prctl, SYS_fcntl, SYS_rt_tgsigqueueinfo},
            .n = 4,
            .action = actions[i],
            .want = {[CLP_PROBE_TIMER] = -EPERM,
                     [CLP_PROBE_ARCH_PRCTL] = -EPERM,
                     [CLP_PROBE_SEALS] = -EPERM,
                     [CLP_PROBE_QUEUE] = -EPERM}});
    }
}

static void passes_on_what_filters_answer(void **state)
{
    (void)state;
    check_filter(
        &(struct filtered){.calls = {SYS_process_vm_readv, SYS_timer_settime},
                           .n = 2,
                           .action = SECCOMP_RET_ERRNO | ENOSYS,
                           .want = {[CLP_PROBE_VM_READV] = -ENOSYS, [CLP_PROBE_TIMER] = -ENOSYS}});
    check_filter(&(struct filtered){.calls = {SYS_close_range},
                                    .n = 1,
                                    .action = SECCOMP_RET_ERRNO | EPERM,
                                    .want = {[CLP_PROBE_UNSHARE] = -EPERM}});
}

/* No child at all: what cannot be tried is not used. */
static void without_a_child_nothing_is_allowed(void **state)
{
    (void)state;
    const struct filtered f = {.calls = {SYS_clone},
                               .n = 1,
                               .action = SECCOMP_RET_ERRNO | EAGAIN,
                               .want = {-EPERM, -EPERM, -EPERM, -EPERM, -EPERM, -EPERM}};
    check_filter(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survives_filters_that_kill),
        cmocka_unit_test(passes_on_what_filters_answer),
        cmocka_unit_test(without_a_child_nothing_is_allowed),
        cmocka_unit_test(allows_all_without_a_filter),
        cmocka_unit_test(the_application_sees_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
