/* Directories of a target in which a file can be made and executed. */
#include "tests/unit/clp-cmocka.h"

#include "agent/where.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void mount_lines(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int result;
        const char *path;
    } cases[] = {
        {"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext4 /dev/root rw", 0, "/mnt2"},
        {"36 35 98:0 / /with\\040blank rw shared:7 master:1 - tmpfs none rw", 0, "/with blank"},
        {"36 35 98:0 / /data rw - overlay overlay rw,lowerdir=a", 0, "/data"},
        {"36 35 98:0 / /data rw,nosuid,noexec - tmpfs none rw", -ENOENT, NULL},
        {"36 35 98:0 / /data ro,nosuid - tmpfs none rw", -ENOENT, NULL},
        {"36 35 98:0 / /rooms rw,noexecutive - tmpfs none rw", 0, "/rooms"},
        {"36 35 98:0 / /net rw - nfs4 host:/x rw", -ENOENT, NULL},
        {"36 35 98:0 / /fuse rw - fuse.sshfs host:/x rw", -ENOENT, NULL},
        {"36 35 98:0 / data rw - tmpfs none rw", -EINVAL, NULL},
        {"36 35 98:0 / /a\\0 rw - tmpfs none rw", -EINVAL, NULL},
        {"36 35 98:0 / /a\\00 rw - tmpfs none rw", -EINVAL, NULL},
        {"36 35 98:0 / /a\\000 rw - tmpfs none rw", -EINVAL, NULL},
        {"36 35 98:0 / /a\\999 rw - tmpfs none rw", -EINVAL, NULL},
        {"36 35 98:0 / /data rw tmpfs none rw", -EINVAL, NULL},
        {"36 35 98:0", -EINVAL, NULL},
        {"", -EINVAL, NULL},
        {"- - - - - - -", -EINVAL, NULL},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(cases); i++) {
        char path[CLP_WHERE_PATH_BYTES] = "untouched";
        int r = clp_where_mount_line(cases[i].line, strlen(cases[i].line), path);
        if (r != cases[i].result || strcmp(path, cases[i].path ? cases[i].path : "untouched") != 0)
            fail_msg("%s: %d '%s'", cases[i].line, r, path);
    }
}

static void long_names_are_left_out(void **state)
{
    (void)state;
    char line[4096], path[CLP_WHERE_PATH_BYTES] = "untouched";
    int n = snprintf(line, sizeof(line), "36 35 98:0 / /%0*d rw - tmpfs none rw", 2000, 0);
    assert_int_equal(clp_where_mount_line(line, (size_t)n, path), -EINVAL);
    assert_string_equal(path, "untouched");
}

struct seen {
    unsigned count;
    bool refuse;
    char first[256];
};

static int take(void *context, int dir_fd, const char *path)
{
    struct seen *s = context;
    assert_true(dir_fd >= 0);
    if (s->count++ == 0)
        snprintf(s->first, sizeof(s->first), "%s", path);
    return s->refuse ? -ENOSPC : 0;
}

/* This process as its own target; /tmp may be executed on the machines of tests, or it is not
 * found. */
static void the_usual_ones_come_first(void **state)
{
    (void)state;
    struct clp_dotnet d = {.pid = getpid(), .uid = getuid(), .gid = getgid(), .own_root = true};
    struct seen s = {.count = 0};
    d.root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int tmp = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (clp_where_noexec(tmp))
        skip();
    assert_int_equal(clp_where(&d, take, &s), 0);
    assert_string_equal(s.first, "/tmp");
    assert_int_equal(s.count, 1);
    s = (struct seen){.refuse = true};
    assert_true(clp_where(&d, take, &s) < 0);
    assert_true(s.count >= 1);
    close(tmp);
    close(d.root_fd);
}

static void rights_are_those_of_the_mode(void **state)
{
    (void)state;
    char dir[] = "/tmp/clp-where-XXXXXX";
    assert_non_null(mkdtemp(dir));
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    uid_t uid = getuid() ? getuid() : 0;
    assert_true(clp_where_may_write(fd, uid, getgid()));
    assert_false(clp_where_may_write(fd, 54321, 54321));
    assert_int_equal(chmod(dir, 0770), 0);
    assert_true(clp_where_may_write(fd, 54321, getgid()));
    assert_int_equal(chmod(dir, 01777), 0);
    assert_true(clp_where_may_write(fd, 54321, 54321));
    close(fd);
    assert_false(clp_where_may_write(fd, 0, 0));
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mount_lines),
        cmocka_unit_test(long_names_are_left_out),
        cmocka_unit_test(the_usual_ones_come_first),
        cmocka_unit_test(rights_are_those_of_the_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
