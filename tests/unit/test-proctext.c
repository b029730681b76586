#include "tests/unit/clp-cmocka.h"

#include "base/core/proctext.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int map_line(const char *s, struct clp_map_entry *e)
{
    return clp_proctext_map_line(s, strlen(s), e);
}

static void map_line_with_a_path(void **state)
{
    (void)state;
    struct clp_map_entry e;
    const char *line = "7f0a1c000000-7f0a1c021000 r-xs 0001f000 fd:0a 1835012    "
                       "                /opt/a b/lib.so (deleted)";
    assert_int_equal(map_line(line, &e), 0);
    assert_int_equal(e.start, 0x7f0a1c000000);
    assert_int_equal(e.end, 0x7f0a1c021000);
    assert_true(e.readable && !e.writable && e.executable && e.shared);
    assert_int_equal(e.file_offset, 0x1f000);
    assert_int_equal(e.dev_major, 0xfd);
    assert_int_equal(e.dev_minor, 0x0a);
    assert_int_equal(e.inode, 1835012);
    assert_int_equal(e.path_len, strlen("/opt/a b/lib.so (deleted)"));
    assert_memory_equal(e.path, "/opt/a b/lib.so (deleted)", e.path_len);
}

static void map_line_without_a_path(void **state)
{
    (void)state;
    struct clp_map_entry e;
    assert_int_equal(map_line("00400000-00401000 ---p 00000000 00:00 0 ", &e), 0);
    assert_int_equal(e.path_len, 0);
    assert_false(e.readable || e.writable || e.executable || e.shared);
    assert_int_equal(map_line("00400000-00401000 rw-p 00000000 00:00 0", &e), 0);
    assert_int_equal(
        map_line("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]", &e), 0);
    assert_int_equal(e.end, 0xffffffffff601000);
}

static void bad_map_lines_leave_the_result_alone(void **state)
{
    (void)state;
    const char *bad[] = {
        "",
        "0040-0030 r--p 0 00:00 0",
        "00400000-00401000 r--q 00000000 00:00 0",
        "00400000-00401000 r-p 00000000 00:00 0",
        "00400000-00401000 r--p 00000000 00:00 ",
        "00400000-00401000 r--p 00000000 0000 0",
        "10000000000000000-10000000000001000 r--p 00000000 00:00 0",
        "00400000-00401000 r--p 00000000 00:00 0x /x",
        "-00401000 r--p 00000000 00:00 0",
    };
    struct clp_map_entry e = {.start = 77};
    for (size_t i = 0; i < CLP_ARRAY_LEN(bad); i++) {
        assert_int_equal(map_line(bad[i], &e), -EINVAL);
        assert_int_equal(e.start, 77);
    }
}

static void stat_with_a_hostile_command(void **state)
{
    (void)state;
    struct clp_proc_stat s;
    const char *text =
        "812 (a) R 1 2 (x) S 44 812 812 34816 -1 4194304 10 0 3 0 250 17 0 0 20 0 9 0 "
        "8211934 1 2 18446744073709551615\n";
    assert_int_equal(clp_proctext_stat(text, strlen(text), &s), 0);
    assert_int_equal(s.pid, 812);
    assert_string_equal(s.comm, "a) R 1 2 (x");
    assert_int_equal(s.state, 'S');
    assert_int_equal(s.ppid, 44);
    assert_false(s.kernel_thread);
    assert_int_equal(s.utime_ticks, 250);
    assert_int_equal(s.stime_ticks, 17);
    assert_int_equal(s.num_threads, 9);
    assert_int_equal(s.start_ticks, 8211934);
}

static void stat_of_a_kernel_thread(void **state)
{
    (void)state;
    struct clp_proc_stat s;
    const char *text = "15 (kworker/0:1) I 2 0 0 0 -1 69238880 0 0 0 0 0 3 0 0 20 0 1 0 12 0 0\n";
    assert_int_equal(clp_proctext_stat(text, strlen(text), &s), 0);
    assert_true(s.kernel_thread);
}

static void stat_that_is_cut(void **state)
{
    (void)state;
    struct clp_proc_stat s = {.pid = 5};
    const char *text =
        "812 (a) S 44 812 812 34816 -1 4194304 10 0 3 0 250 17 0 0 20 0 9 0 8211934 1";
    /* Also a start time without what follows: its last digits may be missing. */
    size_t after_start = (size_t)(strstr(text, "8211934") - text) + strlen("8211934");
    for (size_t n = 0; n <= after_start; n++)
        assert_int_equal(clp_proctext_stat(text, n, &s), -EINVAL);
    assert_int_equal(s.pid, 5);
    assert_int_equal(clp_proctext_stat(text, strlen(text), &s), 0);
}

static void stat_of_this_process(void **state)
{
    (void)state;
    char text[1024];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t n = read(fd, text, sizeof(text));
    close(fd);
    assert_true(n > 0);
    struct clp_proc_stat s;
    assert_int_equal(clp_proctext_stat(text, (size_t)n, &s), 0);
    assert_int_equal(s.pid, getpid());
    assert_int_equal(s.ppid, getppid());
    assert_true(s.start_ticks > 0 && s.num_threads == 1);
}

static const char status_text[] = "Name:\tdotnet\nUmask:\t0022\nState:\tS (sleeping)\n"
                                  "Uid:\t1000\t1001\t1000\t1000\n"
                                  "Gid:\t2000\t2001\t2000\t2000\nTgid:\t4711\nNSpid:\t4711\t30\t2\n"
                                  "SigQ:\t12/15620\nSigBlk:\t0000000000004000\n"
                                  "SigCgt:\t00000003800044fe\nSeccomp:\t2\n";

static void status_fields(void **state)
{
    (void)state;
    struct clp_proc_status s;
    assert_int_equal(clp_proctext_status(status_text, sizeof(status_text) - 1, &s), 0);
    assert_int_equal(s.uid_real, 1000);
    assert_int_equal(s.uid_effective, 1001);
    assert_int_equal(s.gid_effective, 2001);
    assert_int_equal(s.tgid, 4711);
    assert_int_equal(s.ns_pid, 2);
    assert_int_equal(s.sigq_used, 12);
    assert_int_equal(s.sigq_limit, 15620);
    assert_int_equal(s.sig_blocked, 0x4000);
    assert_int_equal(s.sig_caught, 0x3800044feull);
    assert_int_equal(s.seccomp, 2);
}

static void status_that_is_cut_or_strange(void **state)
{
    (void)state;
    struct clp_proc_status s;
    /* The number of a line without its end is not believed. */
    assert_int_equal(clp_proctext_status(status_text, sizeof(status_text) - 2, &s), 0);
    assert_int_equal(s.seccomp, 0);
    const char *bad[] = {"",
                         "Name:\tx\n",
                         "Uid:\t\n",
                         "Uid:\t1\t99999999999\n",
                         "Uid:\t1\t1\nNSpid:\t1\tx\n",
                         "Uid:\t1\t1\nSigQ:\t12\n"};
    for (size_t i = 0; i < CLP_ARRAY_LEN(bad); i++)
        assert_int_equal(clp_proctext_status(bad[i], strlen(bad[i]), &s), -EINVAL);
}

static void environ_values(void **state)
{
    (void)state;
    const char block[] = "XTMPDIR=/no\0TMPDIRX=/no\0TMPDIR\0TMPDIR=/var/t=p\0EMPTY=\0CUT=abc";
    size_t n = 99;
    const char *v = clp_proctext_env(block, sizeof(block) - 1, "TMPDIR", &n);
    assert_non_null(v);
    assert_int_equal(n, strlen("/var/t=p"));
    assert_memory_equal(v, "/var/t=p", n);
    assert_non_null(clp_proctext_env(block, sizeof(block) - 1, "EMPTY", &n));
    assert_int_equal(n, 0);
    assert_null(clp_proctext_env(block, sizeof(block) - 1, "CUT", &n));
    assert_null(clp_proctext_env(block, 0, "TMPDIR", &n));
}

static int syscall_line(const char *s, int64_t *nr, uint64_t *sp, uint64_t *pc)
{
    return clp_proctext_syscall(s, strlen(s), nr, sp, pc);
}

static void syscall_lines(void **state)
{
    (void)state;
    int64_t nr = 7;
    uint64_t sp = 7, pc = 7;
    assert_int_equal(syscall_line("running\n", &nr, &sp, &pc), -EAGAIN);
    assert_int_equal(syscall_line("202 0x1 0x2 0x3 0x4 0x5\n", &nr, &sp, &pc), -EINVAL);
    assert_int_equal(syscall_line("", &nr, &sp, &pc), -EINVAL);
    assert_true(nr == 7 && sp == 7 && pc == 7);
    assert_int_equal(
        syscall_line("202 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffc0010 0x7f00aa\n", &nr, &sp, &pc), 0);
    assert_int_equal(nr, 202);
    assert_int_equal(sp, 0x7ffc0010);
    assert_int_equal(pc, 0x7f00aa);
    assert_int_equal(syscall_line("-1 0x7ffc0020 0x7f00bb", &nr, &sp, &pc), 0);
    assert_int_equal(nr, -1);
    assert_int_equal(sp, 0x7ffc0020);
}

static size_t path_len(const char *line)
{
    struct clp_map_entry e;
    assert_int_equal(map_line(line, &e), 0);
    return clp_proctext_map_path_len(&e);
}

static void path_of_a_file_that_is_gone(void **state)
{
    (void)state;
    assert_int_equal(path_len("1000-2000 r-xp 00000000 08:01 7 /a/b.so"), strlen("/a/b.so"));
    assert_int_equal(path_len("1000-2000 r-xp 00000000 08:01 7 /a/b.so (deleted)"),
                     strlen("/a/b.so"));
    assert_int_equal(path_len("1000-2000 rw-p 00000000 00:00 0"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(path_of_a_file_that_is_gone),
        cmocka_unit_test(map_line_with_a_path),
        cmocka_unit_test(map_line_without_a_path),
        cmocka_unit_test(bad_map_lines_leave_the_result_alone),
        cmocka_unit_test(stat_with_a_hostile_command),
        cmocka_unit_test(stat_of_a_kernel_thread),
        cmocka_unit_test(stat_that_is_cut),
        cmocka_unit_test(stat_of_this_process),
        cmocka_unit_test(status_fields),
        cmocka_unit_test(status_that_is_cut_or_strange),
        cmocka_unit_test(environ_values),
        cmocka_unit_test(syscall_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
