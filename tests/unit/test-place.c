/* What an attach puts into a target's file system. The target is this process, or a directory that
 * plays its root. What needs another uid is skipped without root. */
#include "tests/unit/clp-cmocka.h"

#include "agent/as_user.h"
#include "agent/place.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define OTHER_UID 54321u

static char base[64]; /* holds our library and the target's root */
static char library[96];
static char root[96];
static struct clp_fault fault;

static void make_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void make_dir(const char *path, mode_t mode)
{
    assert_int_equal(mkdir(path, mode), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static int set_up(void **state)
{
    (void)state;
    char tmp[128];
    strcpy(base, "/tmp/clp-place-XXXXXX");
    assert_non_null(mkdtemp(base));
    assert_int_equal(chmod(base, 0755), 0);
    snprintf(library, sizeof(library), "%s/libclrpulse.so", base);
    snprintf(root, sizeof(root), "%s/root", base);
    snprintf(tmp, sizeof(tmp), "%s/tmp", root);
    make_file(library, "the library");
    assert_int_equal(chmod(library, 0644), 0);
    make_dir(root, 0755);
    make_dir(tmp, 01777);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", base);
    return system(command);
}

/* A target whose root is `root_path`; the pid is that of a process without our library. */
static struct clp_dotnet target_in(const char *root_path, const char *temp, uid_t uid)
{
    struct clp_dotnet d = {.pid = getpid(), .uid = uid, .gid = uid};
    char path[256];
    snprintf(d.temp_path, sizeof(d.temp_path), "%s", temp);
    snprintf(path, sizeof(path), "%s%s", root_path, temp);
    d.root_fd = open(root_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    d.temp_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(d.root_fd >= 0 && d.temp_fd >= 0);
    return d;
}

static int entries(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void in_root(const char *path, char *ret, size_t cap)
{
    snprintf(ret, cap, "%s%s", root, path);
}

static void connects(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    assert_true(strlen(path) < sizeof(a.sun_path));
    strcpy(a.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    close(fd);
}

static void our_own_file_is_used_where_it_is_seen(void **state)
{
    (void)state;
    struct clp_place p;
    struct clp_dotnet d = target_in("/", base + 0, getuid());
    assert_int_equal(clp_place_make(&p, &d, library, &fault), 0);
    assert_false(p.copied);
    assert_string_equal(p.library_path, library);
    connects(p.socket_path);
    assert_int_equal(entries(base), 3);
    clp_place_remove(&p);
    assert_int_equal(entries(base), 2); /* library, root */
    clp_place_remove(&p);
    clp_dotnet_done(&d);
}

static void a_copy_is_made_in_another_root(void **state)
{
    (void)state;
    struct clp_place p;
    char path[4200], tmp[128], text[32] = "";
    struct clp_dotnet d = target_in(root, "/tmp", getuid());
    assert_int_equal(clp_place_make(&p, &d, library, &fault), 0);
    assert_true(p.copied);
    in_root(p.library_path, path, sizeof(path));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof(text), f));
    fclose(f);
    assert_string_equal(text, "the library");
    in_root(p.socket_path, path, sizeof(path));
    connects(path);
    clp_place_remove(&p);
    in_root("/tmp", tmp, sizeof(tmp));
    assert_int_equal(entries(tmp), 0);
    clp_dotnet_done(&d);
}

static void everything_belongs_to_the_target(void **state)
{
    (void)state;
    struct clp_place p;
    struct stat st;
    char path[4200];
    if (geteuid() != 0)
        skip();
    struct clp_dotnet d = target_in(root, "/tmp", OTHER_UID);
    assert_int_equal(clp_place_make(&p, &d, library, &fault), 0);
    in_root(p.library_path, path, sizeof(path));
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_uid == OTHER_UID && st.st_gid == OTHER_UID);
    assert_int_equal(st.st_mode & 0777, 0500);
    *strrchr(path, '/') = '\0';
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_uid == OTHER_UID && (st.st_mode & 0777) == 0700);
    assert_int_equal(p.listen_fd >= 0, 1);
    clp_place_remove(&p);
    assert_int_equal(stat(path, &st), -1);
    clp_dotnet_done(&d);
}

/* TMPDIR is the target's word: it may name a directory of root. */
static void nothing_is_made_where_the_target_may_not_write(void **state)
{
    (void)state;
    struct clp_place p;
    char etc[128];
    if (geteuid() != 0)
        skip();
    in_root("/etc", etc, sizeof(etc));
    make_dir(etc, 0755);
    struct clp_dotnet d = target_in(root, "/etc", OTHER_UID);
    assert_int_equal(clp_place_make(&p, &d, library, &fault), -EACCES);
    assert_non_null(strstr(fault.text, "uid 54321"));
    assert_int_equal(entries(etc), 0);
    clp_dotnet_done(&d);
}

static void a_file_that_its_user_may_not_read_is_copied(void **state)
{
    (void)state;
    struct clp_place p;
    if (geteuid() != 0)
        skip();
    assert_int_equal(chmod(library, 0600), 0);
    struct clp_dotnet d = target_in("/", "/tmp", OTHER_UID);
    assert_int_equal(clp_place_make(&p, &d, library, &fault), 0);
    assert_true(p.copied);
    clp_place_remove(&p);
    clp_dotnet_done(&d);
}

/* Runs in a child: the mounts are its own. */
static int noexec_child(void)
{
    struct clp_place p;
    char path[128];
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return 77;
    in_root("/tmp", path, sizeof(path));
    if (mount("none", path, "tmpfs", MS_NOEXEC, NULL) < 0)
        return 77;
    in_root("/var", path, sizeof(path));
    make_dir(path, 0755);
    struct clp_dotnet d = target_in(root, "/tmp", 0);
    if (clp_place_make(&p, &d, library, &fault) != CLP_FAULT_REFUSED ||
        !strstr(fault.text, "noexec"))
        return 1;
    in_root("/var/tmp", path, sizeof(path));
    make_dir(path, 01777);
    if (clp_place_make(&p, &d, library, &fault) != 0 ||
        strncmp(p.library_path, "/var/tmp/clrpulse-", 18) != 0)
        return 2;
    clp_place_remove(&p);
    return entries(path) == 0 ? 0 : 3;
}

static void noexec_temp_is_gone_around(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(noexec_child());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void left_overs_of_a_killed_agent_are_swept(void **state)
{
    (void)state;
    struct clp_place p;
    char tmp[128], old[200], other[200], file[256];
    in_root("/tmp", tmp, sizeof(tmp));
    snprintf(old, sizeof(old), "%s/clrpulse-0123456789abcdef", tmp);
    snprintf(other, sizeof(other), "%s/clrpulse-notes", tmp);
    snprintf(file, sizeof(file), "%s/libclrpulse.so", old);
    make_dir(old, 0700);
    make_dir(other, 0700);
    make_file(file, "x");
    struct clp_dotnet d = target_in(root, "/tmp", getuid());
    assert_int_equal(clp_place_make(&p, &d, library, &fault), 0);
    clp_place_remove(&p);
    assert_int_equal(entries(tmp), 2); /* it may be another agent's, of this moment */
    const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, old, times, 0), 0);
    assert_int_equal(utimensat(AT_FDCWD, other, times, 0), 0);
    assert_int_equal(clp_place_make(&p, &d, library, &fault), 0);
    clp_place_remove(&p);
    assert_int_equal(access(old, F_OK), -1);
    assert_int_equal(access(other, F_OK), 0);
    clp_dotnet_done(&d);
}

static void a_missing_library_is_told(void **state)
{
    (void)state;
    struct clp_place p;
    struct clp_dotnet d = target_in(root, "/tmp", getuid());
    assert_int_equal(clp_place_make(&p, &d, "/no/such/libclrpulse.so", &fault), -ENOENT);
    assert_non_null(strstr(fault.text, "CLRPULSE_LIBRARY"));
    clp_dotnet_done(&d);
}

static void rights_come_back(void **state)
{
    (void)state;
    struct clp_as_user a;
    if (geteuid() != 0)
        skip();
    assert_int_equal(chmod(library, 0600), 0);
    assert_int_equal(clp_as_user_begin(&a, OTHER_UID, OTHER_UID), 0);
    assert_int_equal(open(library, O_RDONLY), -1);
    assert_int_equal(errno, EACCES);
    clp_as_user_end(&a);
    int fd = open(library, O_RDONLY);
    assert_true(fd >= 0);
    close(fd);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(our_own_file_is_used_where_it_is_seen),
        T(a_copy_is_made_in_another_root),
        T(everything_belongs_to_the_target),
        T(nothing_is_made_where_the_target_may_not_write),
        T(a_file_that_its_user_may_not_read_is_copied),
        T(noexec_temp_is_gone_around),
        T(left_overs_of_a_killed_agent_are_swept),
        T(a_missing_library_is_told),
        T(rights_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
