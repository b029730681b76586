#include "tests/unit/clp-cmocka.h"

#include "sampler/inproc/clock.h"
#include "sampler/inproc/procfile.h"
#include "sampler/inproc/tasks.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- clocks ---- */

static uint64_t libc_clock(clockid_t clock)
{
    struct timespec ts;
    assert_int_equal(clock_gettime(clock, &ts), 0);
    return (uint64_t)ts.tv_sec * CLP_NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

static void clocks_agree_with_libc(void **state)
{
    (void)state;
    assert_non_null(clp_clock_vdso());
    const struct {
        clockid_t clock;
        uint64_t (*ours)(void);
    } cases[] = {{CLOCK_MONOTONIC, clp_clock_monotonic_ns},
                 {CLOCK_PROCESS_CPUTIME_ID, clp_clock_process_ns},
                 {CLOCK_THREAD_CPUTIME_ID, clp_clock_self_ns}};
    for (size_t i = 0; i < CLP_ARRAY_LEN(cases); i++) {
        uint64_t before = libc_clock(cases[i].clock), ours = cases[i].ours();
        assert_in_range(ours, before, libc_clock(cases[i].clock));
    }
    assert_in_range(clp_clock_tick_ns(), CLP_NSEC_PER_MSEC, 10 * CLP_NSEC_PER_MSEC);
}

static void other_threads_clocks(void **state)
{
    (void)state;
    int32_t tid = (int32_t)syscall(SYS_gettid);
    uint64_t clock = 77;
    clockid_t id;
    assert_int_equal(pthread_getcpuclockid(pthread_self(), &id), 0);
    assert_int_equal(clp_clock_thread_id(tid), id);
    uint64_t before = clp_clock_self_ns();
    assert_int_equal(clp_clock_thread_ns(tid, &clock), 0);
    assert_in_range(clock, before, clp_clock_self_ns());
    clock = 77;
    assert_true(clp_clock_thread_ns(1, &clock) < 0); /* not of this process */
    assert_true(clp_clock_thread_ns(0x3ffffff, &clock) < 0);
    assert_int_equal(clock, 77);
}

/* ---- files ---- */

static char *make_file(const char *text, size_t n)
{
    static char path[] = "/tmp/clp-procfile-XXXXXX";
    strcpy(path + strlen(path) - 6, "XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), (ssize_t)n);
    close(fd);
    return path;
}

static void reads_what_fits(void **state)
{
    (void)state;
    char buf[8] = "zzzzzzz";
    const char *path = make_file("0123456789", 10);
    assert_int_equal(clp_procfile_read(path, buf, sizeof(buf)), 7);
    assert_string_equal(buf, "0123456");
    unlink(path);
    errno = 4711;
    assert_int_equal(clp_procfile_read(path, buf, sizeof(buf)), -ENOENT);
    assert_int_equal(clp_procfile_read("/tmp", buf, sizeof(buf)), -EISDIR);
    assert_int_equal(errno, 4711);
}

static char seen[256];
static bool collect(void *user, const char *text, size_t len)
{
    unsigned *left = user;
    strncat(seen, text, len);
    strcat(seen, "|");
    return --*left;
}

static void hands_out_lines(void **state)
{
    (void)state;
    const struct {
        const char *text;
        unsigned most;
        const char *want;
    } cases[] = {
        {"", 99, ""},
        {"\n", 99, "|"},
        {"a\nbb\nccc\n", 99, "a|bb|ccc|"},
        {"a\nbb\nccc\n", 2, "a|bb|"},
        {"a\nno end", 99, "a|"},
        {"a\n0123456789abcdefghij\nb\n", 99, "a|b|"}, /* longer than the buffer */
        {"0123456789abcdef0123456789abcdef\nb\n0123456789abcdef", 99, "b|"},
        {"01234567\n01234567\n01234567\n", 99, "01234567|01234567|01234567|"},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(cases); i++) {
        char buf[16];
        unsigned most = cases[i].most;
        seen[0] = '\0';
        const char *path = make_file(cases[i].text, strlen(cases[i].text));
        assert_int_equal(clp_procfile_lines(path, buf, sizeof(buf), collect, &most), 0);
        assert_string_equal(seen, cases[i].want);
        unlink(path);
    }
    char buf[16];
    unsigned most = 1;
    assert_int_equal(clp_procfile_lines("/nowhere", buf, sizeof(buf), collect, &most), -ENOENT);
}

/* ---- tasks ---- */

static _Atomic bool stop;
static void *wait_to_stop(void *arg)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    prctl(PR_SET_NAME, "name (with) ))", 0, 0, 0);
    *(_Atomic int32_t *)arg = (int32_t)syscall(SYS_gettid);
    while (!stop)
        usleep(1000);
    return NULL;
}

struct listed {
    int32_t tids[1000];
    size_t n;
};

static void note(void *user, int32_t tid)
{
    struct listed *l = user;
    if (l->n < CLP_ARRAY_LEN(l->tids))
        l->tids[l->n++] = tid;
}

static bool has(const struct listed *l, int32_t tid)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->tids[i] == tid)
            return true;
    return false;
}

static void lists_all_threads(void **state)
{
    (void)state;
    enum { MANY = 500 }; /* more than one answer of getdents */
    static pthread_t t[MANY];
    static _Atomic int32_t tids[MANY];
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 64 << 10);
    int64_t before = clp_tasks_stamp();
    assert_true(before > 0);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(pthread_create(&t[i], &attr, wait_to_stop, (void *)&tids[i]), 0);
    for (int i = 0; i < MANY; i++)
        while (!tids[i])
            usleep(1000);
    assert_true(clp_tasks_stamp() >= before + MANY); /* a sanitizer may start one, too */
    static struct listed l;
    assert_int_equal(clp_tasks_list(note, &l), 0);
    assert_true(l.n >= MANY + 1);
    assert_true(has(&l, getpid()));
    for (int i = 0; i < MANY; i++)
        assert_true(has(&l, tids[i]));

    char comm[CLP_TASK_COMM_BYTES];
    uint64_t blocked = 0;
    assert_int_equal(clp_tasks_comm(tids[0], comm), 0);
    assert_string_equal(comm, "name (with) ))");
    assert_int_equal(clp_tasks_blocked(tids[0], &blocked), 0);
    assert_int_equal(blocked, 1ull << (SIGUSR1 - 1) | 1ull << (SIGRTMIN - 1));
    assert_true(clp_tasks_comm(0x3ffffff, comm) < 0);
    assert_true(clp_tasks_blocked(0x3ffffff, &blocked) < 0);
    stop = true;
    for (int i = 0; i < MANY; i++)
        pthread_join(t[i], NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clocks_agree_with_libc), cmocka_unit_test(other_threads_clocks),
        cmocka_unit_test(reads_what_fits),        cmocka_unit_test(hands_out_lines),
        cmocka_unit_test(lists_all_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
