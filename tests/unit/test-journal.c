#include "tests/unit/clp-cmocka.h"

#include "base/file.h"
#include "sampler/eventpipe/journal.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/clp-journal-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

/* The only file of the folder, or NULL; its contents in *ret (free). */
static const char *only_file(char **ret)
{
    static char name[256];
    char path[512];
    unsigned n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *e; (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            snprintf(name, sizeof(name), "%s", e->d_name);
            n++;
        }
    closedir(dir);
    assert_true(n <= 1);
    if (n == 0)
        return NULL;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(clp_file_read(path, 4096, ret, NULL), 0);
    return name;
}

static void expect_contents(const char *want)
{
    char *text;
    char prefix[64];
    const char *name = only_file(&text);
    assert_non_null(name);
    snprintf(prefix, sizeof(prefix), "sessions.%d.", getpid());
    assert_int_equal(strncmp(name, prefix, strlen(prefix)), 0);
    assert_string_equal(text, want);
    free(text);
}

static void notes_and_forgets(void **state)
{
    struct clp_journal *j;
    char *text;
    (void)state;
    assert_int_equal(clp_journal_open(folder, &j), 0);
    assert_null(only_file(&text));
    assert_int_equal(clp_journal_add(j, 11, 22, 18446744073709551615ull), 0);
    assert_int_equal(clp_journal_add(j, 12, 23, 34), 0);
    expect_contents("11 22 18446744073709551615\n12 23 34\n");
    assert_int_equal(clp_journal_remove(j, 11, 22, 1), 0); /* not that one */
    assert_int_equal(clp_journal_remove(j, 11, 22, 18446744073709551615ull), 0);
    expect_contents("12 23 34\n");
    assert_int_equal(clp_journal_recover(j), 0); /* its own file is no one's leaving */
    expect_contents("12 23 34\n");
    assert_null(clp_journal_close(j));
    assert_null(only_file(&text));
    assert_int_equal(clp_journal_add(NULL, 1, 2, 3), 0);
    assert_int_equal(clp_journal_remove(NULL, 1, 2, 3), 0);
}

static void leave(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(clp_file_write(path, text, strlen(text), 0600), 0);
}

static void takes_over_from_those_that_are_gone(void **state)
{
    struct clp_journal *j;
    char name[128], *text;
    (void)state;
    assert_int_equal(clp_journal_open(folder, &j), 0);
    leave("sessions.4194303.5", "4194303 5 9\nnonsense\n-4 5 6\n");
    assert_int_equal(clp_journal_recover(j), 0); /* the target is gone as well */
    assert_null(only_file(&text));
    snprintf(name, sizeof(name), "sessions.%d.1", getppid()); /* another process of that number */
    leave(name, "4194303 5 9\n");
    assert_int_equal(clp_journal_recover(j), 0);
    assert_null(only_file(&text));
    leave("sessions.x", "4194303 5 9\n"); /* nobody's: not touched */
    assert_int_equal(clp_journal_recover(j), 0);
    assert_non_null(only_file(&text));
    free(text);
    snprintf(name, sizeof(name), "%s/sessions.x", folder);
    assert_int_equal(unlink(name), 0);
    clp_journal_close(j);
}

static void the_users_folder(void **state)
{
    char path[64], expected[64];
    (void)state;
    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    assert_int_equal(clp_journal_user_folder(path, sizeof(path)), 0);
    assert_string_equal(path, "/run/user/7/clrpulse");
    assert_int_equal(clp_journal_user_folder(path, 5), -ENAMETOOLONG);
    snprintf(expected, sizeof(expected), "%s/clrpulse", folder);
    setenv("XDG_RUNTIME_DIR", folder, 1);
    assert_int_equal(symlink("/tmp", expected), 0); /* somebody's trap */
    assert_int_equal(clp_journal_user_folder(path, sizeof(path)), -EPERM);
    assert_int_equal(unlink(expected), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(notes_and_forgets),
        cmocka_unit_test(takes_over_from_those_that_are_gone),
        cmocka_unit_test(the_users_folder),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
