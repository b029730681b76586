/* The diagnostic port: newcomers are let go at once, each once, whatever others do. */
#include "tests/unit/clp-cmocka.h"

#include "agent/port.h"
#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char dir[64], path[96];
static struct clp_port *port;
static struct clp_fault fault;

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/clp-port-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/p", dir);
    assert_int_equal(clp_port_start(path, &port, &fault), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    port = clp_port_stop(port);
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return system(command);
}

static int connect_port(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strcpy(a.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

static void advertise(int fd, uint8_t instance)
{
    uint8_t m[34] = "ADVR_V1";
    memset(m + 8, instance, 16);
    assert_int_equal(send(fd, m, sizeof(m), MSG_NOSIGNAL), sizeof(m));
}

/* ResumeRuntime within a second, nothing else with it. */
static void expect_resume(int fd)
{
    uint8_t got[64];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 1000), 1);
    assert_int_equal(recv(fd, got, sizeof(got), 0), 20);
    assert_memory_equal(got, "DOTNET_IPC_V1\0\x14\0\x04\x01\0\0", 20);
}

static void expect_silence(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, ms), 0);
}

static void expect_end(int fd)
{
    char c;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 1000), 1);
    assert_true(recv(fd, &c, 1, 0) <= 0);
    close(fd);
}

static void answer(int fd)
{
    static const uint8_t ok[24] = "DOTNET_IPC_V1\0\x18\0\xff\0\0\0";
    assert_int_equal(send(fd, ok, sizeof(ok), MSG_NOSIGNAL), sizeof(ok));
}

/* As a runtime does it: a connection for the command, another one to wait on. */
static void let_go_once(void **state)
{
    (void)state;
    struct clp_port_counts counts;
    int fd = connect_port();
    advertise(fd, 1);
    expect_resume(fd);
    answer(fd);
    expect_end(fd);
    assert_true(clp_port_take(port));
    assert_false(clp_port_take(port));
    int second = connect_port();
    advertise(second, 1);
    expect_silence(second, 100);
    clp_port_get_counts(port, &counts);
    assert_int_equal(counts.resumed, 1);
    assert_int_equal(counts.waiting, 1);
    close(second);
}

/* Silent, slow and wrong ones beside it; fifty at once. */
static void nobody_delays_another(void **state)
{
    (void)state;
    int silent = connect_port(), half = connect_port(), wrong = connect_port(), fds[50];
    assert_int_equal(send(half, "ADVR", 4, 0), 4);
    assert_int_equal(send(wrong, "GET / HTTP/1.1\r\n", 16, 0), 16);
    for (uint8_t i = 0; i < 50; i++) {
        fds[i] = connect_port();
        advertise(fds[i], (uint8_t)(i + 1));
    }
    uint64_t start = clp_clock_monotonic_ns();
    for (int i = 0; i < 50; i++)
        expect_resume(fds[i]);
    assert_true(clp_clock_monotonic_ns() - start < CLP_NSEC_PER_SEC);
    expect_end(wrong);
    for (int i = 0; i < 50; i++)
        close(fds[i]);
    assert_int_equal(send(half, "_V1\0", 4, 0), 4);
    assert_int_equal(send(half, "abcdefghijklmnopabcdefgh\0\0", 26, 0), 26);
    expect_resume(half);
    close(half);
    close(silent);
}

/* One that waits since an agent was killed is let go by the next. */
static void after_a_restart(void **state)
{
    (void)state;
    port = clp_port_stop(port);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strcpy(a.sun_path, path);
    int left = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(left, (struct sockaddr *)&a, sizeof(a)), 0); /* of a killed agent */
    close(left);
    assert_int_equal(clp_port_start(path, &port, &fault), 0);
    int fd = connect_port();
    advertise(fd, 1);
    expect_resume(fd);
    close(fd);
}

/* A peer that takes all places, twice over, keeps nobody waiting. */
static void places_are_not_held(void **state)
{
    (void)state;
    enum { MANY = CLP_PORT_CONNECTIONS + 200 };
    static int fds[MANY];
    struct clp_port_counts counts;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < 2 * MANY + 64)
        skip();
    for (int i = 0; i < MANY; i++) {
        fds[i] = connect_port();
        advertise(fds[i], 1); /* all but the first wait, which has no end */
    }
    int fd = connect_port();
    advertise(fd, 2);
    expect_resume(fd);
    clp_port_get_counts(port, &counts);
    assert_in_range(counts.refused, 1, MANY);
    assert_in_range(counts.waiting, 1, CLP_PORT_CONNECTIONS);
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
    close(fd);
}

/* No empty place of what is remembered is anybody's. */
static void a_cookie_of_zeros_is_one_like_others(void **state)
{
    (void)state;
    int fd = connect_port();
    advertise(fd, 0);
    expect_resume(fd);
    close(fd);
}

/* Without descriptors a newcomer waits, and nobody spins until there is one again. */
static void want_of_descriptors(void **state)
{
    (void)state;
    struct rlimit limit, none = {0};
    struct timespec before, after;
    int fd = connect_port(); /* the last one that there is room for */
    advertise(fd, 1);
    expect_resume(fd);
    int second = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strcpy(a.sun_path, path);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none.rlim_max = limit.rlim_max;
    none.rlim_cur = (rlim_t)dup(STDERR_FILENO); /* the first that is free */
    close((int)none.rlim_cur);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(connect(second, (struct sockaddr *)&a, sizeof(a)), 0);
    advertise(second, 2);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    expect_silence(second, 500);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    struct pollfd p = {.fd = second, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 3000), 1);
    expect_resume(second);
    uint64_t used_ns = (uint64_t)(after.tv_sec - before.tv_sec) * CLP_NSEC_PER_SEC +
                       (uint64_t)after.tv_nsec - (uint64_t)before.tv_nsec;
    assert_true(used_ns < 200 * CLP_NSEC_PER_MSEC);
    close(fd);
    close(second);
}

/* What lies there at the end may be another agent's. */
static void another_ones_socket_stays(void **state)
{
    (void)state;
    struct clp_port *second;
    assert_int_equal(unlink(path), 0);
    assert_int_equal(clp_port_start(path, &second, &fault), 0);
    port = clp_port_stop(port);
    int fd = connect_port();
    advertise(fd, 1);
    expect_resume(fd);
    close(fd);
    clp_port_stop(second);
    assert_int_equal(access(path, F_OK), -1);
}

/* Whoever replaces a dead agent's socket, another that begins at the same moment finds it. */
static void two_at_once(void **state)
{
    (void)state;
    enum { ROUNDS = 50 };
    for (int i = 0; i < ROUNDS; i++) {
        int ends[2], status;
        port = clp_port_stop(port);
        (void)unlink(path); /* where the child had it */
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        strcpy(a.sun_path, path);
        int left = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(left, (struct sockaddr *)&a, sizeof(a)), 0);
        close(left);
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0) {
            char c;
            close(ends[1]);
            int r = clp_port_start(path, &port, &fault);
            (void)!read(ends[0], &c, 1); /* both have begun */
            _exit(r == 0 ? 0 : r == -EADDRINUSE ? 1 : 2);
        }
        (void)usleep((useconds_t)(20 * i)); /* at about its time */
        int r = clp_port_start(path, &port, &fault);
        close(ends[1]);
        close(ends[0]);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal((r == 0) + (WEXITSTATUS(status) == 0), 1);
        assert_int_equal(r == 0 ? WEXITSTATUS(status) : -r, r == 0 ? 1 : EADDRINUSE);
        if (r < 0)
            port = NULL;
    }
}

static void a_place_that_is_taken(void **state)
{
    (void)state;
    struct clp_port *second;
    assert_int_equal(clp_port_start(path, &second, &fault), -EADDRINUSE);
    assert_non_null(strstr(fault.text, "somebody listens on"));
    assert_true(clp_port_start("/no/such/place", &second, &fault) < 0);
    assert_non_null(strstr(fault.text, "targets.diagnostic_port"));
    char long_path[200];
    memset(long_path, 'x', sizeof(long_path) - 1);
    long_path[sizeof(long_path) - 1] = '\0';
    assert_int_equal(clp_port_start(long_path, &second, &fault), -ENAMETOOLONG);
}

/* A mistyped setting costs nobody a file. */
static void a_file_in_its_place_stays(void **state)
{
    (void)state;
    struct clp_port *second;
    char file[160];
    snprintf(file, sizeof(file), "%s/notes.txt", dir);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(clp_port_start(file, &second, &fault), -EADDRINUSE);
    assert_int_equal(access(file, F_OK), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(let_go_once),
        T(nobody_delays_another),
        T(after_a_restart),
        T(a_place_that_is_taken),
        T(a_file_in_its_place_stays),
        T(places_are_not_held),
        T(a_cookie_of_zeros_is_one_like_others),
        T(want_of_descriptors),
        T(another_ones_socket_stays),
        T(two_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
