/* The agent's repeated look at /proc, with a fake one. */
#include "tests/unit/clp-cmocka.h"

#include "agent/scan.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SECOND CLP_NSEC_PER_SEC

static char base[64];
static struct clp_discover_roots roots;
static struct clp_scan *scan;

static void make_dir(const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", base, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void write_file(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", base, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void set_self(long pid)
{
    char path[128], text[32];
    snprintf(path, sizeof(path), "%s/self", base);
    snprintf(text, sizeof(text), "%ld", pid);
    (void)unlink(path);
    assert_int_equal(symlink(text, path), 0);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(base, "/tmp/clp-scan-XXXXXX");
    assert_non_null(mkdtemp(base));
    set_self(getpid());
    roots = (struct clp_discover_roots){.proc = base, .root = "/nowhere"};
    return clp_scan_new(&roots, &scan);
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    scan = clp_scan_free(scan);
    snprintf(command, sizeof(command), "rm -rf '%s'", base);
    return system(command);
}

/* Process 5 with its root in the same folder. */
static void add_process(const char *run_state)
{
    char text[256];
    make_dir("5");
    make_dir("5/root");
    make_dir("5/root/tmp");
    snprintf(text, sizeof(text), "5 (app) %s 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 5 0 77 1 2\n",
             run_state);
    write_file("5/stat", text);
    snprintf(text, sizeof(text), "Uid:\t%u\t%u\t0\t0\nNSpid:\t5\n", getuid(), geteuid());
    write_file("5/status", text);
    write_file("5/environ", "");
}

struct port {
    int fd;
    int clients;
    pthread_t thread;
};

static void *serve(void *context)
{
    struct port *p = context;
    for (int i = 0; i < p->clients; i++) {
        uint8_t in[64], out[256] = "DOTNET_IPC_V1\0\0\0\xff\0\0\0";
        int c = accept(p->fd, NULL, NULL);
        (void)!recv(c, in, sizeof(in), 0);
        size_t n = 20 + 4;
        memcpy(out + n, (uint64_t[]){getpid()}, 8); /* the peer that SO_PEERCRED shows, too */
        n += 24 + 5 * 4;
        out[14] = (uint8_t)n;
        (void)!write(c, out, n);
        close(c);
    }
    return NULL;
}

static void start_port(struct port *p, int clients)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/%d/root/tmp/dotnet-diagnostic-%d-77-socket", base,
             getpid(), getpid());
    p->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(p->fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(p->fd, 8), 0);
    p->clients = clients;
    assert_int_equal(pthread_create(&p->thread, NULL, serve, p), 0);
}

static void describe_self(int threads, int tgid)
{
    char file[64], text[256];
    snprintf(file, sizeof(file), "%d/stat", getpid());
    snprintf(text, sizeof(text), "%d (app) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 %d 0 77 1 2\n",
             getpid(), threads);
    write_file(file, text);
    snprintf(file, sizeof(file), "%d/status", getpid());
    snprintf(text, sizeof(text), "Tgid:\t%d\nUid:\t%u\t%u\t0\t0\nNSpid:\t%d\n", tgid, getuid(),
             geteuid(), getpid());
    write_file(file, text);
}

/* The fake process is this one, so that the listener's pid is right. */
static void become_self(void)
{
    char from[128], to[128];
    snprintf(from, sizeof(from), "%s/5", base);
    snprintf(to, sizeof(to), "%s/%d", base, getpid());
    assert_int_equal(rename(from, to), 0);
    describe_self(5, getpid());
}

static int found_count;
static int32_t hold_pid;
static uint64_t hold_until;
static enum clp_dotnet_state found_state;

static void found(void *context, struct clp_dotnet *d)
{
    (void)context;
    found_count++;
    found_state = d->state;
    hold_pid = d->pid;
    if (hold_until)
        clp_scan_hold(scan, d->pid, hold_until);
}

static int round_at(uint64_t now_ns)
{
    found_count = 0;
    assert_int_equal(clp_scan_round(scan, now_ns, found, NULL), 0);
    return found_count;
}

static void a_target_is_found_and_held(void **state)
{
    (void)state;
    struct port p;
    add_process("S");
    become_self();
    start_port(&p, 2);
    hold_until = 100 * SECOND;
    assert_int_equal(round_at(10 * SECOND), 1);
    assert_int_equal(hold_pid, getpid());
    assert_int_equal(round_at(11 * SECOND), 0);
    assert_int_equal(round_at(99 * SECOND), 0);
    assert_int_equal(round_at(100 * SECOND), 1);
    pthread_join(p.thread, NULL);
    close(p.fd);
}

#define MS CLP_NSEC_PER_MSEC

/* A process without a port is looked at after 250, 500 ms ... 30 s: one that becomes a target
 * meanwhile is found then. */
static void others_are_looked_at_more_rarely(void **state)
{
    (void)state;
    struct port p;
    add_process("S");
    become_self();
    hold_until = UINT64_MAX;
    assert_int_equal(round_at(10 * SECOND), 0);
    assert_int_equal(round_at(10 * SECOND + 250 * MS), 0); /* next look 500 ms later */
    start_port(&p, 1);
    assert_int_equal(round_at(10 * SECOND + 749 * MS), 0);
    assert_int_equal(round_at(10 * SECOND + 750 * MS), 1);
    assert_int_equal(found_state, CLP_DOTNET_READY);
    pthread_join(p.thread, NULL);
    close(p.fd);
}

static void set_name(const char *name)
{
    char file[64];
    snprintf(file, sizeof(file), "%d/comm", getpid());
    write_file(file, name);
}

/* A shell that waits for a data base and then becomes the application. */
static void another_program_is_looked_at_at_once(void **state)
{
    (void)state;
    struct port p;
    add_process("S");
    become_self();
    set_name("sh\n");
    hold_until = UINT64_MAX;
    for (uint64_t t = 10; t < 100; t += 2) /* looked at every 30 s by now */
        assert_int_equal(round_at(t * SECOND), 0);
    start_port(&p, 1);
    assert_int_equal(round_at(101 * SECOND), 0);
    set_name("app\n");
    assert_int_equal(round_at(102 * SECOND), 1);
    pthread_join(p.thread, NULL);
    close(p.fd);
}

static void a_hurry_looks_at_all_that_is_not_held(void **state)
{
    (void)state;
    struct port p;
    add_process("S");
    become_self();
    hold_until = 500 * SECOND;
    for (uint64_t t = 10; t < 100; t += 2)
        assert_int_equal(round_at(t * SECOND), 0);
    start_port(&p, 2);
    clp_scan_hurry(scan);
    assert_int_equal(round_at(100 * SECOND), 1);
    clp_scan_hurry(scan);
    assert_int_equal(round_at(101 * SECOND), 0); /* held */
    clp_scan_release(scan);
    assert_int_equal(round_at(102 * SECOND), 1); /* new settings */
    pthread_join(p.thread, NULL);
    close(p.fd);
}

static void set_last_pid(long pid)
{
    char text[64];
    snprintf(text, sizeof(text), "0.10 0.20 0.30 1/200 %ld\n", pid);
    write_file("loadavg", text);
}

/* While the kernel gives out no number, nobody is looked for; a new number is looked at alone. */
static void nothing_new_costs_no_listing(void **state)
{
    (void)state;
    struct port p;
    set_last_pid(getpid() - 1);
    assert_int_equal(round_at(10 * SECOND), 0);
    assert_int_equal(round_at(10 * SECOND + 250 * MS), 0);
    add_process("S");
    become_self();
    start_port(&p, 4);
    hold_until = 14 * SECOND;
    assert_int_equal(round_at(10 * SECOND + 500 * MS), 0); /* not looked for: nobody has started */
    set_last_pid(getpid() + 1);
    assert_int_equal(round_at(10 * SECOND + 750 * MS), 1);
    assert_int_equal(round_at(13 * SECOND), 0);
    assert_int_equal(round_at(13 * SECOND + 500 * MS), 0);
    assert_int_equal(round_at(14 * SECOND), 1); /* its hold has ended */
    hold_until = 100 * SECOND;
    assert_int_equal(round_at(14 * SECOND + 250 * MS), 1);
    assert_int_equal(round_at(14 * SECOND + 500 * MS), 0);
    clp_scan_release(scan);
    assert_int_equal(round_at(14 * SECOND + 750 * MS), 1);
    pthread_join(p.thread, NULL);
    close(p.fd);
}

/* What was not seen when its number was new is found by a listing: within ten seconds, and at once
 * where there are many new ones or numbers have begun from the start again. */
static void listings(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        long last_pid; /* after the first round, which has it at getpid() */
        uint64_t after_ms;
        int found;
    } table[] = {
        {"nothing new", 0, 9999, 0},           {"every ten seconds", 0, 10000, 1},
        {"as many as are tried", 64, 250, 0},  {"more", 65, 250, 1},
        {"from the start again", -10, 250, 1},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(table); i++) {
        struct port p;
        if (i > 0)
            assert_int_equal(set_up(state), 0);
        set_last_pid(getpid());
        assert_int_equal(round_at(10 * SECOND), 0);
        add_process("S");
        become_self();
        start_port(&p, 1);
        set_last_pid(getpid() + table[i].last_pid);
        hold_until = UINT64_MAX;
        if (round_at(10 * SECOND + table[i].after_ms * MS) != table[i].found)
            fail_msg("%s: %d", table[i].what, table[i].found);
        if (!found_count)
            assert_int_equal(round_at(30 * SECOND), 1);
        pthread_join(p.thread, NULL);
        close(p.fd);
        assert_int_equal(tear_down(state), 0);
    }
    assert_int_equal(set_up(state), 0);
}

/* A fault of one round must not make the next one try all numbers that there are. */
static void what_could_not_be_read_is_listed(void **state)
{
    (void)state;
    struct port p;
    char path[128];
    set_last_pid(getpid() - 1);
    assert_int_equal(round_at(10 * SECOND), 0);
    snprintf(path, sizeof(path), "%s/loadavg", base);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(round_at(10 * SECOND + 250 * MS), 0);
    add_process("S");
    become_self();
    start_port(&p, 1);
    hold_until = UINT64_MAX;
    set_last_pid(getpid() - 1); /* before it, so no number leads there */
    assert_int_equal(round_at(10 * SECOND + 500 * MS), 1);
    pthread_join(p.thread, NULL);
    close(p.fd);
}

/* Where /proc tells nothing of the numbers that are given out: it counts otherwise than loadavg
 * does, or that says nothing. */
static void without_numbers_each_round_lists(void **state)
{
    static const struct {
        const char *what;
        long self, last_pid;
    } table[] = {{"a namespace around ours", 1, 70},
                 {"one without us", 0, 70}, /* there, the kernel's link cannot be read */
                 {"no numbers", -1, 0}};
    for (size_t i = 0; i < CLP_ARRAY_LEN(table); i++) {
        struct port p;
        if (i > 0)
            assert_int_equal(set_up(state), 0);
        set_self(table[i].self < 0 ? getpid() : table[i].self);
        scan = clp_scan_free(scan);
        assert_int_equal(clp_scan_new(&roots, &scan), 0);
        set_last_pid(table[i].last_pid);
        assert_int_equal(round_at(10 * SECOND), 0);
        add_process("S");
        become_self();
        start_port(&p, 1);
        hold_until = UINT64_MAX;
        if (round_at(10 * SECOND + 250 * MS) != 1)
            fail_msg("%s: not found", table[i].what);
        pthread_join(p.thread, NULL);
        close(p.fd);
        assert_int_equal(tear_down(state), 0);
    }
    assert_int_equal(set_up(state), 0);
}

/* The process that was held has gone, and its number has come round before a listing missed it. */
static void a_number_that_comes_again_is_another_process(void **state)
{
    (void)state;
    struct port p;
    char file[64], text[128];
    set_last_pid(getpid() - 1);
    add_process("S");
    become_self();
    snprintf(file, sizeof(file), "%d/stat", getpid());
    snprintf(text, sizeof(text), "%d (app) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 5 0 76 1 2\n",
             getpid());
    write_file(file, text);
    assert_int_equal(round_at(10 * SECOND), 0);
    clp_scan_hold(scan, getpid(), UINT64_MAX);
    describe_self(5, getpid());
    start_port(&p, 1);
    hold_until = UINT64_MAX;
    assert_int_equal(round_at(10 * SECOND + 250 * MS), 0); /* no new number, nobody to look at */
    set_last_pid(getpid());
    assert_int_equal(round_at(10 * SECOND + 500 * MS), 1);
    set_last_pid(getpid() - 1); /* all the way round: a living one keeps its number and its hold */
    assert_int_equal(round_at(10 * SECOND + 750 * MS), 0);
    set_last_pid(getpid());
    assert_int_equal(round_at(11 * SECOND), 0);
    pthread_join(p.thread, NULL);
    close(p.fd);
}

/* No runtime is in a process of one thread, and a thread is no process, though /proc shows it as
 * one to those who ask for it. */
static void threads_tell(void **state)
{
    (void)state;
    struct port p;
    add_process("S");
    become_self();
    start_port(&p, 1);
    hold_until = UINT64_MAX;
    describe_self(1, getpid());
    assert_int_equal(round_at(10 * SECOND), 0);
    describe_self(2, getpid() + 1);
    assert_int_equal(round_at(20 * SECOND), 0);
    describe_self(2, getpid());
    assert_int_equal(round_at(50 * SECOND), 1);
    pthread_join(p.thread, NULL);
    close(p.fd);
}

/* A shell that waits for a data base and then becomes the application, which starts threads. */
static void a_new_thread_leads_to_its_process(void **state)
{
    (void)state;
    struct port p;
    char file[64], text[256];
    set_last_pid(getpid());
    add_process("S");
    become_self();
    hold_until = UINT64_MAX;
    for (uint64_t ms = 0; ms <= 40000; ms += 250) /* looked at every 30 s by now */
        assert_int_equal(round_at(10 * SECOND + ms * MS), 0);
    start_port(&p, 1);
    assert_int_equal(round_at(50 * SECOND + 250 * MS), 0);
    snprintf(file, sizeof(file), "%d", getpid() + 1);
    make_dir(file);
    snprintf(file, sizeof(file), "%d/stat", getpid() + 1);
    snprintf(text, sizeof(text), "%d (app) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 2 0 77 1 2\n",
             getpid() + 1);
    write_file(file, text);
    snprintf(file, sizeof(file), "%d/status", getpid() + 1);
    snprintf(text, sizeof(text), "Tgid:\t%d\nUid:\t0\t0\t0\t0\n", getpid());
    write_file(file, text);
    set_last_pid(getpid() + 1);
    assert_int_equal(round_at(50 * SECOND + 500 * MS), 1);
    pthread_join(p.thread, NULL);
    close(p.fd);
}

/* Even if it were a process later, which no listing has shown. */
static void a_thread_is_looked_at_once(void **state)
{
    (void)state;
    struct port p;
    set_last_pid(getpid() - 1);
    assert_int_equal(round_at(10 * SECOND), 0);
    add_process("S");
    become_self();
    start_port(&p, 1);
    describe_self(5, getpid() - 1);
    set_last_pid(getpid());
    hold_until = UINT64_MAX;
    assert_int_equal(round_at(10 * SECOND + 250 * MS), 0);
    describe_self(5, getpid());
    for (uint64_t ms = 500; ms < 10000; ms += 250)
        assert_int_equal(round_at(10 * SECOND + ms * MS), 0);
    assert_int_equal(round_at(20 * SECOND), 1); /* listed */
    pthread_join(p.thread, NULL);
    close(p.fd);
}

static void rounds_cost_little(void **state)
{
    (void)state;
    assert_int_equal(clp_scan_pause_ns(0), CLP_SCAN_EVERY_NS);
    assert_int_equal(clp_scan_pause_ns(MS), CLP_SCAN_EVERY_NS);
    assert_int_equal(clp_scan_pause_ns(MS * 5 / 2), 500 * MS);
    assert_int_equal(clp_scan_pause_ns(50 * MS), SECOND); /* new ones within a second */
}

static void a_pid_that_was_gone_is_new(void **state)
{
    (void)state;
    struct port p;
    char path[128], away[128];
    add_process("S");
    become_self();
    start_port(&p, 2);
    hold_until = UINT64_MAX;
    assert_int_equal(round_at(10 * SECOND), 1);
    assert_int_equal(round_at(20 * SECOND), 0);
    snprintf(path, sizeof(path), "%s/%d", base, getpid());
    snprintf(away, sizeof(away), "%s/away", base);
    assert_int_equal(rename(path, away), 0);
    assert_int_equal(round_at(21 * SECOND), 0);
    assert_int_equal(rename(away, path), 0);
    assert_int_equal(round_at(22 * SECOND), 1);
    pthread_join(p.thread, NULL);
    close(p.fd);
}

static void stopped_ones_are_not_asked(void **state)
{
    (void)state;
    char path[256];
    add_process("T");
    snprintf(path, sizeof(path), "%s/5/root/tmp/dotnet-diagnostic-5-77-socket", base);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strcpy(a.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 1), 0);
    hold_until = 0;
    assert_int_equal(round_at(10 * SECOND), 1); /* told, but as it is */
    assert_int_equal(found_state, CLP_DOTNET_PORT);
    assert_int_equal(accept(fd, NULL, NULL), -1); /* nobody came */
    close(fd);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_target_is_found_and_held),
        T(others_are_looked_at_more_rarely),
        T(another_program_is_looked_at_at_once),
        T(a_hurry_looks_at_all_that_is_not_held),
        T(nothing_new_costs_no_listing),
        T(listings),
        T(what_could_not_be_read_is_listed),
        T(without_numbers_each_round_lists),
        T(a_number_that_comes_again_is_another_process),
        T(threads_tell),
        T(rounds_cost_little),
        T(a_new_thread_leads_to_its_process),
        T(a_thread_is_looked_at_once),
        T(a_pid_that_was_gone_is_new),
        T(stopped_ones_are_not_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
