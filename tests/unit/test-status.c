/* The status socket and what is said over it. */
#include "tests/unit/clp-cmocka.h"

#include "agent/status.h"
#include "agent/status_socket.h"
#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char dir[64];
static struct clp_status_socket *server;
static struct clp_fault fault;
static size_t answer_bytes;

static void reply(void *context, const char *question, struct clp_strbuf *ret)
{
    (void)context;
    clp_strbuf_printf(ret, "you asked %s\n", question);
    while (ret->len < answer_bytes)
        clp_strbuf_str(ret, "0123456789abcde\n");
}

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/clp-status-XXXXXX");
    assert_non_null(mkdtemp(dir));
    answer_bytes = 0;
    assert_int_equal(clp_status_listen(dir, reply, NULL, &server, &fault), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    server = clp_status_close(server);
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return system(command);
}

static void serve(uint64_t ms)
{
    uint64_t until = clp_clock_monotonic_ns() + ms * CLP_NSEC_PER_MSEC;
    while (clp_clock_monotonic_ns() < until) {
        struct pollfd fds[CLP_STATUS_FDS];
        (void)poll(fds, (nfds_t)clp_status_fds(server, fds), 5);
        clp_status_step(server, clp_clock_monotonic_ns());
    }
}

struct asker {
    const char *question;
    char *answer;
    int result;
    pthread_t thread;
};

static void *ask(void *context)
{
    struct asker *a = context;
    a->result = clp_status_ask(dir, a->question, &a->answer);
    return NULL;
}

static void question_and_answer(void **state)
{
    (void)state;
    struct asker a = {.question = "json"};
    answer_bytes = 1 << 20; /* more than a socket holds */
    assert_int_equal(pthread_create(&a.thread, NULL, ask, &a), 0);
    serve(300);
    pthread_join(a.thread, NULL);
    assert_int_equal(a.result, 0);
    assert_memory_equal(a.answer, "you asked json\n", 15);
    assert_true(strlen(a.answer) >= answer_bytes);
    free(a.answer);
}

static int connect_client(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/" CLP_STATUS_SOCKET_NAME, dir);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

/* Silent clients take all places for a while, and no longer. */
static void silent_clients_are_dropped(void **state)
{
    (void)state;
    int fds[CLP_STATUS_CLIENTS];
    struct pollfd polled[CLP_STATUS_FDS];
    for (size_t i = 0; i < CLP_STATUS_CLIENTS; i++)
        fds[i] = connect_client();
    clp_status_step(server, 100 * CLP_NSEC_PER_SEC);
    assert_int_equal(clp_status_fds(server, polled), CLP_STATUS_CLIENTS);
    int another = connect_client();
    assert_int_equal(poll(polled, CLP_STATUS_CLIENTS, 0), 0); /* nobody spins on it */
    clp_status_step(server, 100 * CLP_NSEC_PER_SEC + CLP_STATUS_CLIENT_NS);
    assert_int_equal(clp_status_fds(server, polled), 1);
    assert_int_equal(poll(polled, 1, 0), 1);
    close(another);
    for (size_t i = 0; i < CLP_STATUS_CLIENTS; i++) {
        char c;
        assert_int_equal(recv(fds[i], &c, 1, 0), 0);
        close(fds[i]);
    }
}

static void nonsense_is_dropped(void **state)
{
    (void)state;
    int fd = connect_client();
    char c;
    assert_int_equal(send(fd, "a question that is too long\n", 28, 0), 28);
    serve(30);
    assert_true(recv(fd, &c, 1, 0) <= 0);
    close(fd);
}

static void one_agent_for_each_directory(void **state)
{
    (void)state;
    struct clp_status_socket *second = NULL;
    assert_int_equal(clp_status_listen(dir, reply, NULL, &second, &fault), -EADDRINUSE);
    assert_non_null(strstr(fault.text, "another agent runs"));
}

/* What lies there at the end may be another agent's. */
static void another_agents_socket_stays(void **state)
{
    (void)state;
    struct clp_status_socket *second = NULL;
    char path[128];
    snprintf(path, sizeof(path), "%s/" CLP_STATUS_SOCKET_NAME, dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(clp_status_listen(dir, reply, NULL, &second, &fault), 0);
    server = clp_status_close(server);
    assert_int_equal(access(path, F_OK), 0);
    server = second;
}

/* Without descriptors a client waits, and poll sleeps, until there is one again. */
static void want_of_descriptors(void **state)
{
    (void)state;
    struct rlimit limit, none = {0};
    struct pollfd polled[CLP_STATUS_FDS];
    int fd = connect_client();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none.rlim_max = limit.rlim_max;
    none.rlim_cur = (rlim_t)dup(STDERR_FILENO); /* the first that is free */
    close((int)none.rlim_cur);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    clp_status_step(server, 1);
    size_t n = clp_status_fds(server, polled);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(poll(polled, (nfds_t)n, 0), 0);
    clp_status_step(server, 2);
    assert_int_equal(clp_status_fds(server, polled), 2);
    close(fd);
}

/* Somebody else's socket in the place of an agent's: more than there may be, and no end. */
struct talker {
    int listen_fd;
    size_t bytes; /* then silence */
    useconds_t pause_us;
};

static void *talk(void *context)
{
    const struct talker *t = context;
    static const char text[16384] = {'x'};
    int fd = accept4(t->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    ssize_t n = 1;
    for (size_t at = 0; n > 0 && at < t->bytes; at += (size_t)n) {
        n = send(fd, text, t->pause_us ? 1 : sizeof(text), MSG_NOSIGNAL);
        (void)usleep(t->pause_us);
    }
    char c;
    (void)recv(fd, &c, 1, 0); /* the question */
    while (n > 0 && recv(fd, &c, 1, 0) > 0)
        ;
    close(fd);
    return NULL;
}

static void ask_talker(struct talker *t, int expected)
{
    pthread_t thread;
    char *answer, path[128];
    server = clp_status_close(server);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(path, sizeof(path), "%s/" CLP_STATUS_SOCKET_NAME, dir);
    strcpy(a.sun_path, path);
    t->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(t->listen_fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(t->listen_fd, 1), 0);
    assert_int_equal(pthread_create(&thread, NULL, talk, t), 0);
    uint64_t start_ns = clp_clock_monotonic_ns();
    assert_int_equal(clp_status_ask(dir, "text", &answer), expected);
    assert_true(clp_clock_monotonic_ns() - start_ns < 2 * CLP_STATUS_CLIENT_NS);
    pthread_join(thread, NULL);
    close(t->listen_fd);
}

static void an_answer_has_a_ceiling(void **state)
{
    (void)state;
    struct talker t = {.bytes = CLP_STATUS_MAX_BYTES + 65536};
    ask_talker(&t, -ENOBUFS);
}

static void an_answer_has_an_end(void **state)
{
    (void)state;
    struct talker t = {.bytes = 300, .pause_us = 100000};
    ask_talker(&t, -ETIMEDOUT);
}

static void a_question_has_a_length(void **state)
{
    (void)state;
    char *answer;
    assert_int_equal(clp_status_ask(dir, "a question that is too long", &answer), -EINVAL);
}

/* An agent that was killed leaves its socket. */
static void a_dead_agents_socket_is_replaced(void **state)
{
    (void)state;
    char path[128];
    server = clp_status_close(server);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(path, sizeof(path), "%s/" CLP_STATUS_SOCKET_NAME, dir);
    strcpy(a.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    close(fd);
    char *answer;
    assert_int_equal(clp_status_ask(dir, "text", &answer), -ECONNREFUSED);
    assert_int_equal(clp_status_listen(dir, reply, NULL, &server, &fault), 0);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0007, 0); /* not for everybody */
    server = clp_status_close(server);
    assert_int_equal(clp_status_ask(dir, "text", &answer), -ENOENT);
    assert_int_equal(clp_status_ask("/no/such", "text", &answer), -ENOENT);
}

/* ---- what is said -------------------------------------------------------------------------- */

static void rendering(void **state)
{
    (void)state;
    struct clp_roster roster = {.count = 0};
    struct clp_walltime walltime = {.ahead_ns = 1500000000};
    struct clp_outbox_lane lane = {.name = "upload 1 (http)",
                                   .where = "http://h:1/\x1b",
                                   .refused = 6,
                                   .dropped = {[CLP_DROP_POISON] = 2, [CLP_DROP_STALE] = 4},
                                   .folded = 5,
                                   .lost = 3,
                                   .last_error = "a \"b\"\x1b"};
    struct clp_status s = {.config_path = "/c.yaml",
                           .now_ns = 100 * CLP_NSEC_PER_SEC,
                           .started_ns = 10 * CLP_NSEC_PER_SEC,
                           .roster = &roster,
                           .walltime = &walltime,
                           .lanes = &lane,
                           .lane_count = 1};
    struct clp_dotnet d = {.pid = 7, .start_ticks = 1, .state = CLP_DOTNET_READY};
    strcpy(d.comm, "evil\x1b[2J");
    struct clp_member *m = clp_roster_meet(&roster, &d, 20 * CLP_NSEC_PER_SEC);
    struct clp_fault f = {-ETIMEDOUT, "it is \"slow\"\n"};
    clp_member_fail(m, &f, 99 * CLP_NSEC_PER_SEC);
    m->totals.counters[CLP_CTR_DROP_RING_FULL] = 11;
    struct clp_strbuf text;
    clp_strbuf_init(&text, 1 << 20);
    clp_status_text(&s, &text);
    const char *t = clp_strbuf_text(&text);
    assert_null(strchr(t, '\x1b'));
    assert_non_null(strstr(t, "up 1m30s, configuration /c.yaml"));
    assert_non_null(strstr(t, "profiles are stamped 1.5 s ahead"));
    assert_non_null(strstr(t, "it is \"slow\"?; next attempt in 1 s"));
    assert_non_null(strstr(t, "lost or limited: drop_ring_full 11\n"));
    assert_non_null(strstr(t, "upload 1 (http) to http://h:1/?: 0 delivered"));
    assert_non_null(strstr(t, "0 crowded out, 3 lost"));
    assert_non_null(strstr(t, " refused: 2 poison, 4 stale\n"));
    assert_non_null(strstr(t, " 5 samples folded into [other]"));
    clp_strbuf_reset(&text);
    clp_status_json(&s, &text);
    t = clp_strbuf_text(&text);
    assert_null(strchr(t, '\x1b'));
    assert_non_null(strstr(t, "\"reason\":\"it is \\\"slow\\\"\\n\""));
    assert_non_null(strstr(t, "\"drop_ring_full\":11"));
    assert_non_null(strstr(t, "\"retry_in_seconds\":1"));
    clp_strbuf_reset(&text);
    clp_status_audit(&s, &text);
    assert_string_equal(clp_strbuf_text(&text), "the agent profiles no process now\n");
    m->state = CLP_MEMBER_PROFILING;
    m->totals.audited_cpu_ns = 2e9;
    m->totals.kernel_cpu_ns = 2000000000 + 20000000;
    m->totals.audited_wall_ns = 30e9;
    m->totals.kernel_wall_ns = 40e9;
    clp_strbuf_reset(&text);
    clp_status_audit(&s, &text);
    assert_non_null(strstr(clp_strbuf_text(&text), "profiles 2.000 s, kernel 2.020 s: 99.01 %"));
    assert_non_null(
        strstr(clp_strbuf_text(&text), "  wall             profiles 30.000 s, kernel 40.000 s: "));
    assert_null(strstr(clp_strbuf_text(&text), "managed")); /* not told, which is not none */
    m->totals.audited_events[CLP_AUDITED_ALLOC_BYTES] = (struct clp_audited_event){990, 1000};
    m->totals.counters[CLP_CTR_ALLOC_BYTES] = 1000;
    m->totals.counters[CLP_CTR_ALLOC_COUNTED_BYTES] = 995;
    m->totals.counters[CLP_CTR_THREADS_MANAGED] = 12;
    m->totals.counters[CLP_CTR_THREADS_POOL] = 7;
    m->totals.counters[CLP_CTR_HEAP_GEN2_BYTES] = 3 << 20;
    clp_strbuf_reset(&text);
    clp_status_audit(&s, &text);
    t = clp_strbuf_text(&text);
    assert_non_null(strstr(t, "  alloc_bytes      profiles 990, library 1000 bytes: 99.00 %\n"));
    assert_null(strstr(t, "lock_delay"));
    assert_non_null(strstr(t, " MB, 99.50 % of it counted by the runtime's own counters\n"));
    assert_non_null(strstr(t, "12 threads, 7 of them workers of the pool, heap 3.0 MB after"));
    clp_type_counts_add(&m->totals.exceptions, "System.\"A\"", 3);
    clp_type_counts_add(&m->totals.exceptions, "System.B", 4);
    clp_type_counts_add(&m->totals.exceptions, "System.\"A\"", 2);
    for (unsigned i = 0; i < CLP_TYPE_COUNTS_SHOWN; i++) {
        char name[16];
        snprintf(name, sizeof(name), "T%u", i);
        clp_type_counts_add(&m->totals.exceptions, name, 1);
    }
    clp_strbuf_reset(&text);
    clp_status_json(&s, &text);
    t = clp_strbuf_text(&text);
    assert_non_null(
        strstr(t, "\"exceptions_by_type\":{\"System.\\\"A\\\"\":5,\"System.B\":4,\"T0\":1,"));
    assert_non_null(strstr(t, ",\"others\":2}")); /* the last two types are the lightest */
    clp_strbuf_done(&text);
    clp_roster_done(&roster);
}

static void kernels_clock(void **state)
{
    (void)state;
    uint64_t before = clp_kernel_cpu_ns(getpid());
    assert_true(before > 0);
    for (uint64_t until = clp_clock_monotonic_ns() + 20000000; clp_clock_monotonic_ns() < until;)
        ;
    assert_true(clp_kernel_cpu_ns(getpid()) > before);
    assert_int_equal(clp_kernel_cpu_ns(0x7ffffff0), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(question_and_answer),         T(silent_clients_are_dropped),
        T(nonsense_is_dropped),         T(one_agent_for_each_directory),
        T(another_agents_socket_stays), T(want_of_descriptors),
        T(an_answer_has_a_ceiling),     T(an_answer_has_an_end),
        T(a_question_has_a_length),     T(a_dead_agents_socket_is_replaced),
        cmocka_unit_test(rendering),    cmocka_unit_test(kernels_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
