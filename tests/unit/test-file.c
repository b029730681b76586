#include "tests/unit/clp-cmocka.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "tests/unit/alloc-fail.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Each test runs in a fresh directory. */
static char dir[64];
static int dir_fd = -1;

static int enter(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/clp-test-file-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir_fd < 0 ? -1 : 0;
}

static void remove_tree(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            unlinkat(fd, e->d_name, 0) < 0)
            remove_tree(fd, e->d_name);
    if (d)
        (void)closedir(d);
    (void)unlinkat(at, name, AT_REMOVEDIR);
}

static int leave(void **state)
{
    (void)state;
    (void)close(dir_fd);
    remove_tree(AT_FDCWD, dir);
    return 0;
}

static unsigned entries(void)
{
    CLP_CLEANUP(clp_cleanup_dir) DIR *d = opendir(dir);
    unsigned n = 0;
    assert_non_null(d);
    while (readdir(d))
        n++;
    return n - 2;
}

static void assert_contents(const char *name, const char *want)
{
    char *got = NULL;
    size_t len = 0;
    assert_int_equal(clp_file_read_at(dir_fd, name, 1000, &got, &len), 0);
    assert_int_equal(len, strlen(want));
    assert_string_equal(got, want);
    free(got);
}

static void writes_whole_and_replaces(void **state)
{
    (void)state;
    assert_int_equal(clp_file_write_at(dir_fd, "f", "one", 3, 0600), 0);
    assert_contents("f", "one");
    assert_int_equal(clp_file_write_at(dir_fd, "f", "two!", 4, 0640), 0);
    assert_contents("f", "two!");
    struct stat st;
    assert_int_equal(fstatat(dir_fd, "f", &st, 0), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    char path[128];
    snprintf(path, sizeof(path), "%s/g", dir);
    assert_int_equal(clp_file_write(path, "", 0, 0600), 0);
    assert_contents("g", "");
    assert_int_equal(entries(), 2);
}

static void devices_and_links_stay_what_they_are(void **state)
{
    (void)state;
    char path[128], got[8] = "";
    struct stat st;
    assert_int_equal(clp_file_write("/dev/null", "x", 1, 0600), 0);
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    assert_int_equal(clp_file_write("/dev/full", "x", 1, 0600), -ENOSPC);

    assert_int_equal(mkfifoat(dir_fd, "fifo", 0600), 0);
    int reader = openat(dir_fd, "fifo", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    snprintf(path, sizeof(path), "%s/fifo", dir);
    assert_int_equal(clp_file_write(path, "flow", 4, 0600), 0);
    assert_int_equal(read(reader, got, sizeof(got)), 4);
    assert_string_equal(got, "flow");
    (void)close(reader);

    assert_int_equal(clp_file_write_at(dir_fd, "f", "old", 3, 0600), 0);
    assert_int_equal(symlinkat("f", dir_fd, "link"), 0);
    snprintf(path, sizeof(path), "%s/link", dir);
    assert_int_equal(clp_file_write(path, "new", 3, 0600), 0);
    assert_contents("f", "new");
    assert_int_equal(fstatat(dir_fd, "link", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(clp_file_write(dir, "x", 1, 0600), -EISDIR);
}

static void a_failed_write_leaves_nothing(void **state)
{
    (void)state;
    assert_int_equal(mkdirat(dir_fd, "taken", 0700), 0);
    assert_int_equal(clp_file_write_at(dir_fd, "taken", "x", 1, 0600), -EISDIR);
    assert_int_equal(clp_file_write_at(dir_fd, "a/b", "x", 1, 0600), -EINVAL);
    assert_int_equal(clp_file_write_at(dir_fd, "", "x", 1, 0600), -EINVAL);
    assert_int_equal(entries(), 1);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(full >= 0);
    assert_int_equal(clp_file_write_fd(full, "x", 1), -ENOSPC);
    (void)close(full);
}

static void reads_only_regular_files_and_only_so_much(void **state)
{
    (void)state;
    char *got = NULL;
    assert_int_equal(clp_file_write_at(dir_fd, "f", "12345", 5, 0600), 0);
    assert_int_equal(clp_file_read_at(dir_fd, "f", 4, &got, NULL), -EFBIG);
    assert_int_equal(clp_file_read_at(dir_fd, "none", 4, &got, NULL), -ENOENT);
    assert_int_equal(clp_file_read_at(dir_fd, ".", 4, &got, NULL), -EINVAL);
    assert_int_equal(mkfifoat(dir_fd, "fifo", 0600), 0);
    assert_int_equal(clp_file_read_at(dir_fd, "fifo", 4, &got, NULL), -EINVAL);
    assert_null(got);
    assert_int_equal(clp_file_read_at(dir_fd, "f", 5, &got, NULL), 0);
    assert_string_equal(got, "12345");
    free(got);
}

static void reads_proc_whose_files_have_no_size(void **state)
{
    (void)state;
    char *got = NULL;
    size_t len = 0;
    assert_int_equal(clp_file_read("/proc/self/status", 1 << 16, &got, &len), 0);
    assert_memory_equal(got, "Name:\ttest-file\n", 16);
    assert_int_equal(strlen(got), len);
    free(got);
}

static int open_errno(const char *path, int flags)
{
    int fd = clp_file_open_in(dir_fd, path, flags);
    if (fd < 0)
        return fd;
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    (void)close(fd);
    return 0;
}

static void opens_inside_a_root_without_links(void **state)
{
    (void)state;
    assert_int_equal(mkdirat(dir_fd, "sub", 0700), 0);
    assert_int_equal(mkdirat(dir_fd, "sub/deep", 0700), 0);
    int deep = openat(dir_fd, "sub/deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(clp_file_write_at(deep, "f", "x", 1, 0600), 0);
    assert_int_equal(mkfifoat(deep, "fifo", 0600), 0);
    (void)close(deep);
    assert_int_equal(symlinkat("/etc/passwd", dir_fd, "sub/file-link"), 0);
    assert_int_equal(symlinkat("deep", dir_fd, "sub/dir-link"), 0);
    assert_int_equal(symlinkat("/", dir_fd, "sub/root-link"), 0);

    assert_int_equal(open_errno("/sub/deep/f", O_RDONLY), 0);
    assert_int_equal(open_errno("sub//deep/f", O_RDONLY), 0);
    assert_int_equal(open_errno("sub/deep/f", O_PATH), 0);
    assert_int_equal(open_errno("/", O_RDONLY | O_DIRECTORY), 0);
    assert_int_equal(open_errno("", O_RDONLY | O_DIRECTORY), 0);
    assert_int_equal(open_errno("/sub/deep/fifo", O_RDONLY), 0); /* and does not wait */
    assert_int_equal(open_errno("/sub/none", O_RDONLY), -ENOENT);
    assert_int_equal(open_errno("/etc/passwd", O_RDONLY), -ENOENT);
    assert_int_equal(open_errno("/sub/file-link", O_RDONLY), -ELOOP);
    assert_int_equal(open_errno("/sub/file-link", O_PATH), -ELOOP);
    assert_int_equal(open_errno("/sub/dir-link/f", O_RDONLY), -ELOOP);
    assert_int_equal(open_errno("/sub/root-link/etc/passwd", O_RDONLY), -ELOOP);
    /* "/.." of the foreign root is that root. */
    int r = open_errno("/../../../etc/passwd", O_RDONLY);
    assert_true(r == -ENOENT || r == -EXDEV);
}

/* From here on openat2 answers like a kernel that does not know it. Must be the last test. */
static void opens_the_same_without_openat2(void **state)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = CLP_ARRAY_LEN(code), .filter = code};
    assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
        skip();
    assert_int_equal(syscall(SYS_openat2, -1, "", NULL, 0), -1);
    assert_int_equal(errno, ENOSYS);
    opens_inside_a_root_without_links(state);
}

static void makes_directories(void **state)
{
    (void)state;
    char path[128];
    struct stat st;
    snprintf(path, sizeof(path), "%s/a/b//c/", dir);
    assert_int_equal(clp_file_mkdir_p(path, 0750), 0);
    assert_int_equal(clp_file_mkdir_p(path, 0750), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    assert_int_equal(clp_file_write_at(dir_fd, "f", "x", 1, 0600), 0);
    snprintf(path, sizeof(path), "%s/f", dir);
    assert_int_equal(clp_file_mkdir_p(path, 0750), -ENOTDIR);
    snprintf(path, sizeof(path), "%s/f/g", dir);
    assert_int_equal(clp_file_mkdir_p(path, 0750), -ENOTDIR);
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    char path[128];
    char *got = NULL;
    assert_int_equal(clp_file_write_at(dir_fd, "f", "x", 1, 0600), 0);
    snprintf(path, sizeof(path), "%s/f", dir);
    alloc_fail_after(0, 1);
    int read_error = clp_file_read(path, 100, &got, NULL);
    int write_error = clp_file_write(path, "y", 1, 0600);
    int mkdir_error = clp_file_mkdir_p(dir, 0700);
    (void)alloc_fail_stop();
    assert_int_equal(read_error, -ENOMEM);
    assert_int_equal(write_error, -ENOMEM);
    assert_int_equal(mkdir_error, -ENOMEM);
    assert_null(got);
    assert_contents("f", "x");
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, enter, leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIR(writes_whole_and_replaces),
        IN_DIR(devices_and_links_stay_what_they_are),
        IN_DIR(a_failed_write_leaves_nothing),
        IN_DIR(reads_only_regular_files_and_only_so_much),
        IN_DIR(reads_proc_whose_files_have_no_size),
        IN_DIR(opens_inside_a_root_without_links),
        IN_DIR(makes_directories),
        IN_DIR(no_memory_is_an_error),
        IN_DIR(opens_the_same_without_openat2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
