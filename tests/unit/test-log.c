#include "tests/unit/clp-cmocka.h"

#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int pipe_fds[2];

static int open_pipe(void **state)
{
    (void)state;
    return pipe(pipe_fds);
}

static int close_pipe(void **state)
{
    (void)state;
    clp_log_setup(CLP_LOG_INFO, false, STDERR_FILENO);
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
    return 0;
}

/* What was logged so far; closes the writing end. */
static size_t logged(char *buf, size_t cap)
{
    size_t len = 0;
    (void)close(pipe_fds[1]);
    for (ssize_t n; (n = read(pipe_fds[0], buf + len, cap - 1 - len)) > 0;)
        len += (size_t)n;
    buf[len] = '\0';
    pipe_fds[1] = dup(pipe_fds[0]);
    return len;
}

/* The journal has its own time and levels; another descriptor than the journal's is not it. */
static void the_journals_own_form(void **state)
{
    (void)state;
    char buf[4096], stream[64];
    struct stat st;
    assert_int_equal(fstat(pipe_fds[1], &st), 0);
    snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    clp_log_setup(CLP_LOG_INFO, false, pipe_fds[1]);
    clp_log_warning("a\n<0>b");
    clp_log_setup(CLP_LOG_INFO, true, pipe_fds[1]);
    clp_log_error("c");
    snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino + 1);
    setenv("JOURNAL_STREAM", stream, 1);
    clp_log_setup(CLP_LOG_INFO, false, pipe_fds[1]);
    clp_log_info("d");
    unsetenv("JOURNAL_STREAM");
    (void)logged(buf, sizeof(buf));
    static const char begin[] = "<4>a\\x0a<0>b\n<3>{\"time\":\"2";
    assert_memory_equal(buf, begin, strlen(begin));
    assert_non_null(strstr(buf, "Z info d\n"));
}

static void text_lines_cannot_be_forged(void **state)
{
    (void)state;
    char buf[4096];
    clp_log_setup(CLP_LOG_INFO, false, pipe_fds[1]);
    clp_log_info("target %s", "a\nb\x1b[2J\xff");
    (void)logged(buf, sizeof(buf));
    assert_string_equal(buf + 24, " info target a\\x0ab\\x1b[2J\xef\xbf\xbd\n");
    assert_int_equal(buf[23], 'Z');
}

static void json_lines(void **state)
{
    (void)state;
    char buf[4096];
    clp_log_setup(CLP_LOG_DEBUG, true, pipe_fds[1]);
    clp_log_debug("say \"%s\"", "x");
    (void)logged(buf, sizeof(buf));
    assert_memory_equal(buf, "{\"time\":\"", 9);
    assert_string_equal(strstr(buf, ",\"level\""),
                        ",\"level\":\"debug\",\"message\":\"say \\\"x\\\"\"}\n");
}

static void levels_are_kept(void **state)
{
    (void)state;
    char buf[4096];
    clp_log_setup(CLP_LOG_WARNING, false, pipe_fds[1]);
    clp_log_info("no");
    clp_log_debug("no");
    clp_log_warning("yes");
    clp_log_error("yes");
    (void)logged(buf, sizeof(buf));
    assert_null(strstr(buf, "no"));
    assert_non_null(strstr(buf, " warning yes\n"));
    assert_non_null(strstr(buf, " error yes\n"));
}

static void a_site_is_limited_and_says_how_many(void **state)
{
    (void)state;
    char buf[8192];
    struct clp_log_site site = {0};
    unsigned lines = 0;
    clp_log_setup(CLP_LOG_INFO, false, pipe_fds[1]);
    for (int i = 0; i < 25; i++)
        clp_log_write(&site, CLP_LOG_INFO, "line %d", i);
    site.window_start_ns = 1; /* long ago */
    clp_log_write(&site, CLP_LOG_INFO, "later");
    (void)logged(buf, sizeof(buf));
    for (char *at = buf; (at = strchr(at, '\n')); at++)
        lines++;
    assert_int_equal(lines, CLP_LOG_BURST + 1);
    assert_non_null(strstr(buf, "line 9\n"));
    assert_non_null(strstr(buf, "later (15 such lines held back before)\n"));
}

static void errno_is_kept_and_long_lines_are_cut(void **state)
{
    (void)state;
    static char big[10000];
    static char buf[16384];
    memset(big, 'x', sizeof(big) - 1);
    clp_log_setup(CLP_LOG_INFO, false, pipe_fds[1]);
    errno = EXDEV;
    clp_log_info("%s", big);
    assert_int_equal(errno, EXDEV);
    clp_log_info("%m");
    size_t len = logged(buf, sizeof(buf));
    assert_true(len < CLP_LOG_LINE_BYTES + 200);
    assert_non_null(strstr(buf, "Invalid cross-device link\n"));
}

static void level_names(void **state)
{
    (void)state;
    enum clp_log_level level = CLP_LOG_DEBUG;
    assert_int_equal(clp_log_parse_level("Warn", &level), 0);
    assert_int_equal(level, CLP_LOG_WARNING);
    assert_int_equal(clp_log_parse_level("error", &level), 0);
    assert_int_equal(level, CLP_LOG_ERROR);
    assert_int_equal(clp_log_parse_level("verbose", &level), -EINVAL);
    assert_int_equal(level, CLP_LOG_ERROR);
}

#define WITH_PIPE(test) cmocka_unit_test_setup_teardown(test, open_pipe, close_pipe)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_PIPE(the_journals_own_form),
        WITH_PIPE(text_lines_cannot_be_forged),
        WITH_PIPE(json_lines),
        WITH_PIPE(levels_are_kept),
        WITH_PIPE(a_site_is_limited_and_says_how_many),
        WITH_PIPE(errno_is_kept_and_long_lines_are_cut),
        cmocka_unit_test(level_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
