/* Discovery over a fake /proc: each target is a directory with stat, status, environ and root, and,
 * where it has a port, a real socket in its own root. */
#include "tests/unit/clp-cmocka.h"

#include "base/clock.h"
#include "sampler/eventpipe/discover.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char base[64];
static char proc_dir[80], root_dir[80];
static struct clp_discover_roots roots;

static void make_dir(const char *path)
{
    if (mkdir(path, 0700) < 0)
        assert_int_equal(errno, EEXIST);
}

static void write_file(const char *dir, const char *name, const char *data, size_t len)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(base, "/tmp/clp-discover-XXXXXX");
    assert_non_null(mkdtemp(base));
    snprintf(proc_dir, sizeof(proc_dir), "%s/proc", base);
    snprintf(root_dir, sizeof(root_dir), "%s/root", base);
    make_dir(proc_dir);
    make_dir(root_dir);
    roots = (struct clp_discover_roots){.proc = proc_dir, .root = root_dir};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", base);
    return system(command);
}

/* A process whose own root is <base>/r<pid>; returns that. */
static const char *add_process(int pid, int ns_pid, unsigned long long start,
                               const char *environment, size_t environment_len)
{
    static char own_root[128];
    char dir[128], text[512], link[160];
    snprintf(dir, sizeof(dir), "%s/%d", proc_dir, pid);
    snprintf(own_root, sizeof(own_root), "%s/r%d", base, pid);
    make_dir(dir);
    make_dir(own_root);
    int n = snprintf(text, sizeof(text),
                     "%d (app) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 5 0 %llu 1 2 3\n", pid, start);
    write_file(dir, "stat", text, (size_t)n);
    n = snprintf(text, sizeof(text), "Name:\tapp\nUid:\t%u\t%u\t0\t0\nNSpid:\t%d\t%d\n", getuid(),
                 geteuid(), pid, ns_pid);
    write_file(dir, "status", text, (size_t)n);
    write_file(dir, "environ", environment, environment_len);
    snprintf(link, sizeof(link), "%s/root", dir);
    assert_int_equal(symlink(own_root, link), 0);
    return own_root;
}

static int listen_at(const char *dir, int ns_pid, unsigned long long start)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int n = snprintf(a.sun_path, sizeof(a.sun_path), "%s/dotnet-diagnostic-%d-%llu-socket", dir,
                     ns_pid, start);
    assert_true(n > 0 && (size_t)n < sizeof(a.sun_path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 16), 0);
    return fd;
}

static struct clp_dotnet open_process(int pid)
{
    struct clp_dotnet d;
    assert_int_equal(clp_dotnet_open(&roots, pid, &d), 0);
    return d;
}

static void sub_dir(const char *parent, const char *name, char *buf, size_t cap)
{
    snprintf(buf, cap, "%s/%s", parent, name);
    make_dir(buf);
}

static void finds_the_port_by_inner_pid_and_start_time(void **state)
{
    (void)state;
    char tmp[160];
    const char *own = add_process(900, 7, 5511, "A=1\0TMPDIR=/t/\0", 15);
    sub_dir(own, "t", tmp, sizeof(tmp));
    /* Left-overs and plants: another start time, the outer pid. */
    close(listen_at(tmp, 7, 5510));
    int newer = listen_at(tmp, 7, 5512);
    int outer = listen_at(tmp, 900, 5511);
    struct clp_dotnet d = open_process(900);
    assert_int_equal(d.state, CLP_DOTNET_NO);
    clp_dotnet_done(&d);
    int real = listen_at(tmp, 7, 5511);
    d = open_process(900);
    assert_int_equal(d.state, CLP_DOTNET_PORT);
    assert_string_equal(d.temp_path, "/t");
    assert_string_equal(d.socket_name, "dotnet-diagnostic-7-5511-socket");
    assert_true(d.own_root && d.ns_pid == 7 && d.start_ticks == 5511);
    clp_dotnet_done(&d);
    close(newer);
    close(outer);
    close(real);
}

static void a_symlink_is_not_a_port(void **state)
{
    (void)state;
    char tmp[160], elsewhere[160], link[256], target[256];
    const char *own = add_process(901, 901, 1, "", 0);
    sub_dir(own, "tmp", tmp, sizeof(tmp));
    sub_dir(own, "e", elsewhere, sizeof(elsewhere));
    int fd = listen_at(elsewhere, 901, 1);
    snprintf(target, sizeof(target), "%s/dotnet-diagnostic-901-1-socket", elsewhere);
    snprintf(link, sizeof(link), "%s/dotnet-diagnostic-901-1-socket", tmp);
    assert_int_equal(symlink(target, link), 0);
    struct clp_dotnet d = open_process(901);
    assert_int_equal(d.state, CLP_DOTNET_NO);
    clp_dotnet_done(&d);
    close(fd);
}

static void a_temp_directory_behind_a_symlink_is_not_entered(void **state)
{
    (void)state;
    char elsewhere[160], link[200];
    const char *own = add_process(902, 902, 1, "TMPDIR=/l\0", 10);
    sub_dir(own, "e", elsewhere, sizeof(elsewhere));
    int fd = listen_at(elsewhere, 902, 1);
    snprintf(link, sizeof(link), "%s/l", own);
    assert_int_equal(symlink("e", link), 0);
    struct clp_dotnet d = open_process(902);
    assert_int_equal(d.state, CLP_DOTNET_NO);
    assert_int_equal(d.error, -ELOOP);
    clp_dotnet_done(&d);
    close(fd);
}

static void unreadable_root_falls_back_to_plain_tmp(void **state)
{
    (void)state;
    char path[200], tmp[160];
    (void)add_process(903, 903, 77, "", 0);
    snprintf(path, sizeof(path), "%s/903/root", proc_dir);
    assert_int_equal(unlink(path), 0);
    sub_dir(root_dir, "tmp", tmp, sizeof(tmp));
    int fd = listen_at(tmp, 903, 77);
    struct clp_dotnet d = open_process(903);
    assert_int_equal(d.state, CLP_DOTNET_PORT);
    assert_false(d.own_root);
    assert_string_equal(d.temp_path, "/tmp");
    clp_dotnet_done(&d);
    close(fd);
}

static void nobody_listens(void **state)
{
    (void)state;
    char tmp[160], why[256];
    const char *own = add_process(904, 904, 5, "", 0);
    sub_dir(own, "tmp", tmp, sizeof(tmp));
    close(listen_at(tmp, 904, 5));
    struct clp_dotnet d = open_process(904);
    assert_int_equal(d.state, CLP_DOTNET_PORT);
    clp_dotnet_ask(&d, 1, CLP_DISCOVER_ASK_NS);
    assert_int_equal(d.state, CLP_DOTNET_STALE);
    clp_dotnet_explain(&d, why, sizeof(why));
    assert_non_null(strstr(why, "nobody listens"));
    clp_dotnet_done(&d);
}

static void no_such_process_and_the_living(void **state)
{
    (void)state;
    struct clp_dotnet d;
    assert_int_equal(clp_dotnet_open(&roots, 4711, &d), -ESRCH);
    (void)add_process(905, 905, 1000, "", 0);
    d = open_process(905);
    assert_true(clp_dotnet_alive(&roots, &d));
    d.start_ticks++; /* the pid was given to another process */
    assert_false(clp_dotnet_alive(&roots, &d));
    clp_dotnet_done(&d);
}

static int collect(void *context, int32_t pid)
{
    int *sum = context;
    *sum += pid;
    return 0;
}

static void walks_only_the_numbers(void **state)
{
    (void)state;
    char dir[160];
    int sum = 0;
    (void)add_process(11, 11, 1, "", 0);
    (void)add_process(12, 12, 1, "", 0);
    sub_dir(proc_dir, "sys", dir, sizeof(dir));
    sub_dir(proc_dir, "99999999999", dir, sizeof(dir));
    assert_int_equal(clp_discover_pids(&roots, collect, &sum), 0);
    assert_int_equal(sum, 23);
    assert_true(clp_discover_hides(&roots)); /* no process 1 here */
}

static void threads_tell_a_runtime_without_a_port(void **state)
{
    (void)state;
    char task[160], tid[200];
    struct clp_dotnet d;
    (void)add_process(906, 906, 1, "", 0);
    snprintf(task, sizeof(task), "%s/906/task", proc_dir);
    make_dir(task);
    sub_dir(task, "906", tid, sizeof(tid));
    write_file(tid, "comm", "app\n", 4);
    d = open_process(906);
    clp_dotnet_look_closer(&roots, &d);
    assert_int_equal(d.state, CLP_DOTNET_NO);
    clp_dotnet_done(&d);
    sub_dir(task, "908", tid, sizeof(tid));
    write_file(tid, "comm", ".NET SynchManag\n", 16);
    d = open_process(906);
    clp_dotnet_look_closer(&roots, &d);
    assert_int_equal(d.state, CLP_DOTNET_NO_PORT);
    clp_dotnet_done(&d);
}

/* ---- ports that answer, or not ---- */

struct server {
    int fd;
    int clients;  /* to serve */
    uint64_t pid; /* to claim */
    bool knows_version_3;
    pthread_t thread;
};

static size_t add_text(uint8_t *at, const char *s)
{
    uint32_t n = (uint32_t)strlen(s) + 1;
    memcpy(at, &n, 4);
    for (uint32_t i = 0; i < n; i++)
        memcpy(at + 4 + 2 * i, (uint16_t[]){(uint16_t)s[i]}, 2);
    return 4 + 2 * n;
}

static size_t answer(const struct server *s, uint8_t command, uint8_t *out)
{
    size_t n = 20;
    bool ok = command != 0x08 || s->knows_version_3;
    memcpy(out, "DOTNET_IPC_V1\0\0\0\xff\0\0\0", 20);
    if (!ok) {
        out[17] = 0xff;
        memcpy(out + n, (uint32_t[]){0x80131385}, 4);
        n += 4;
    } else {
        if (command == 0x08) {
            memcpy(out + n, (uint32_t[]){1}, 4);
            n += 4;
        }
        memcpy(out + n, &s->pid, 8);
        memset(out + n + 8, 0xab, 16);
        n += 24;
        n += add_text(out + n, "app");
        n += add_text(out + n, "Linux");
        n += add_text(out + n, "x64");
        n += add_text(out + n, "app");
        n += add_text(out + n, s->knows_version_3 ? "10.0.1" : "7.0.9");
    }
    out[14] = (uint8_t)n;
    return n;
}

static void *serve(void *context)
{
    struct server *s = context;
    for (int i = 0; i < s->clients; i++) {
        uint8_t in[64], out[512];
        int c = accept(s->fd, NULL, NULL);
        ssize_t got = recv(c, in, sizeof(in), 0);
        if (got >= 20) {
            size_t n = answer(s, in[17], out);
            /* In two pieces: a reader must put them together. */
            (void)!write(c, out, 10);
            (void)!write(c, out + 10, n - 10);
        }
        close(c);
    }
    return NULL;
}

static void start_server(struct server *s)
{
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void silent_ones_delay_nobody(void **state)
{
    (void)state;
    enum { N = 20, SILENT = 13 };
    struct clp_dotnet d[N];
    struct server servers[N];
    for (int i = 0; i < N; i++) {
        char tmp[160];
        const char *own = add_process(1000 + i, 5, (unsigned)i + 1, "", 0);
        sub_dir(own, "tmp", tmp, sizeof(tmp));
        servers[i] = (struct server){.fd = listen_at(tmp, 5, (unsigned)i + 1),
                                     .clients = 1,
                                     .pid = 5,
                                     .knows_version_3 = true};
        if (i != SILENT)
            start_server(&servers[i]);
        d[i] = open_process(1000 + i);
        d[i].own_root = false; /* all listeners are this test: no peer check */
    }
    uint64_t begin = clp_clock_monotonic_ns();
    clp_dotnet_ask(d, N, 400 * CLP_NSEC_PER_MSEC);
    uint64_t took = clp_clock_monotonic_ns() - begin;
    assert_in_range(took, 390 * CLP_NSEC_PER_MSEC, 1500 * CLP_NSEC_PER_MSEC);
    for (int i = 0; i < N; i++) {
        assert_int_equal(d[i].state, i == SILENT ? CLP_DOTNET_SILENT : CLP_DOTNET_READY);
        if (i != SILENT) {
            assert_string_equal(d[i].info.runtime_version, "10.0.1");
            pthread_join(servers[i].thread, NULL);
        }
        clp_dotnet_done(&d[i]);
        close(servers[i].fd);
    }
}

static struct clp_dotnet ask_one(int pid, struct server *s)
{
    char tmp[160];
    const char *own = add_process(pid, 5, 9, "", 0);
    sub_dir(own, "tmp", tmp, sizeof(tmp));
    s->fd = listen_at(tmp, 5, 9);
    start_server(s);
    struct clp_dotnet d = open_process(pid);
    d.own_root = false;
    clp_dotnet_ask(&d, 1, 2 * CLP_NSEC_PER_SEC);
    pthread_join(s->thread, NULL);
    close(s->fd);
    return d;
}

static void older_runtimes_are_asked_again(void **state)
{
    (void)state;
    struct server s = {.clients = 2, .pid = 5, .knows_version_3 = false};
    struct clp_dotnet d = ask_one(950, &s);
    assert_int_equal(d.state, CLP_DOTNET_READY);
    assert_int_equal(d.info.major, 7);
    clp_dotnet_done(&d);
}

static void an_answer_for_another_process_is_refused(void **state)
{
    (void)state;
    struct server s = {.clients = 1, .pid = 6, .knows_version_3 = true};
    struct clp_dotnet d = ask_one(951, &s);
    assert_int_equal(d.state, CLP_DOTNET_BROKEN);
    assert_int_equal(d.error, -ESTALE);
    clp_dotnet_done(&d);
}

static void a_listener_that_is_another_process_is_refused(void **state)
{
    (void)state;
    char tmp[160];
    struct server s = {.clients = 1, .pid = 5, .knows_version_3 = true};
    const char *own = add_process(952, 5, 9, "", 0);
    sub_dir(own, "tmp", tmp, sizeof(tmp));
    s.fd = listen_at(tmp, 5, 9);
    start_server(&s);
    struct clp_dotnet d = open_process(952); /* this test is not process 952 */
    clp_dotnet_ask(&d, 1, 2 * CLP_NSEC_PER_SEC);
    pthread_join(s.thread, NULL);
    close(s.fd);
    assert_int_equal(d.state, CLP_DOTNET_BROKEN);
    clp_dotnet_done(&d);
}

static void explains_who_may(void **state)
{
    (void)state;
    char why[256];
    struct clp_dotnet d = {
        .pid = 12, .comm = "app", .uid = geteuid() + 1, .state = CLP_DOTNET_DENIED};
    clp_dotnet_explain(&d, why, sizeof(why));
    char uid[32];
    snprintf(uid, sizeof(uid), "uid %u", d.uid);
    assert_non_null(strstr(why, uid));
    d.state = CLP_DOTNET_SILENT;
    d.run_state = 'T';
    clp_dotnet_explain(&d, why, sizeof(why));
    assert_non_null(strstr(why, "is stopped"));
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(finds_the_port_by_inner_pid_and_start_time),
        T(a_symlink_is_not_a_port),
        T(a_temp_directory_behind_a_symlink_is_not_entered),
        T(unreadable_root_falls_back_to_plain_tmp),
        T(nobody_listens),
        T(no_such_process_and_the_living),
        T(walks_only_the_numbers),
        T(threads_tell_a_runtime_without_a_port),
        T(silent_ones_delay_nobody),
        T(older_runtimes_are_asked_again),
        T(an_answer_for_another_process_is_refused),
        T(a_listener_that_is_another_process_is_refused),
        T(explains_who_may),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
