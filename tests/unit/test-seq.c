/* Numbers of profiles: kept over restarts, the larger of two places wins. */
#include "tests/unit/clp-cmocka.h"

#include "agent/seq.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char dir[64];
static struct clp_seq *seq;
static struct clp_fault fault;
static const uint8_t one[CLP_GUID_BYTES] = {1, 2, 3}, other[CLP_GUID_BYTES] = {9};

static void reopen(void)
{
    clp_seq_free(seq);
    assert_int_equal(clp_seq_new(dir, &seq, &fault), 0);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/clp-seq-XXXXXX");
    assert_non_null(mkdtemp(dir));
    seq = NULL;
    reopen();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    seq = clp_seq_free(seq);
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return system(command);
}

static const char *file_of(const char *name)
{
    static char path[160];
    snprintf(path, sizeof(path), "%s/seq/%s", dir, name);
    return path;
}

#define ONE_FILE "01020300000000000000000000000000"

static void write_file(const char *name, const char *text)
{
    FILE *f = fopen(file_of(name), "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void from_zero_each(void **state)
{
    (void)state;
    assert_int_equal(clp_seq_next(seq, one, 0), 0);
    assert_int_equal(clp_seq_taken(seq, one, 0), 0);
    assert_int_equal(clp_seq_next(seq, one, 0), 1);
    assert_int_equal(clp_seq_next(seq, other, 0), 0);
}

static void kept_over_a_restart(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(clp_seq_next(seq, one, 0), i);
        assert_int_equal(clp_seq_taken(seq, one, i), 0);
        reopen();
    }
}

/* What is not taken is given out again: no gap. */
static void not_taken_is_not_used_up(void **state)
{
    (void)state;
    assert_int_equal(clp_seq_next(seq, one, 0), 0);
    assert_int_equal(clp_seq_next(seq, one, 0), 0);
    reopen();
    assert_int_equal(clp_seq_next(seq, one, 0), 0);
}

static void the_larger_wins(void **state)
{
    (void)state;
    assert_int_equal(clp_seq_taken(seq, one, 6), 0);
    assert_int_equal(clp_seq_next(seq, one, 4), 7);
    assert_int_equal(clp_seq_next(seq, one, 9), 9);
    assert_int_equal(clp_seq_next(seq, one, CLP_SEQ_MAX + 1), 7); /* nonsense of a target */
    assert_int_equal(clp_seq_next(seq, other, CLP_SEQ_MAX + 1), 0);
}

static void files_that_are_no_number_count_as_none(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "x\n",
                                        "7",
                                        "7 \n",
                                        "99999999999999999999999\n",
                                        "\n",
                                        "-3\n",
                                        "7\n8\n",
                                        "9007199254740993\n"};
    for (size_t i = 0; i < CLP_ARRAY_LEN(texts); i++) {
        write_file(ONE_FILE, texts[i]);
        assert_int_equal(clp_seq_next(seq, one, 3), i == 7 ? 7 : 3);
    }
    write_file(ONE_FILE, "12\n");
    assert_int_equal(clp_seq_next(seq, one, 3), 12);
}

static void forgotten_at_the_end(void **state)
{
    (void)state;
    assert_int_equal(clp_seq_taken(seq, one, 3), 0);
    assert_int_equal(access(file_of(ONE_FILE), F_OK), 0);
    clp_seq_forget(seq, one);
    assert_int_equal(access(file_of(ONE_FILE), F_OK), -1);
    clp_seq_forget(seq, one); /* again is no error */
}

static void old_files_are_swept(void **state)
{
    (void)state;
    struct timespec old[2] = {{.tv_sec = time(NULL) - CLP_SEQ_OLD_SECONDS - 60},
                              {.tv_sec = time(NULL) - CLP_SEQ_OLD_SECONDS - 60}};
    write_file(ONE_FILE, "5\n");
    write_file("someone-elses", "5\n");
    assert_int_equal(clp_seq_taken(seq, other, 3), 0);
    assert_int_equal(utimensat(AT_FDCWD, file_of(ONE_FILE), old, 0), 0);
    assert_int_equal(utimensat(AT_FDCWD, file_of("someone-elses"), old, 0), 0);
    reopen();
    assert_int_equal(clp_seq_next(seq, one, 0), 0);
    assert_int_equal(clp_seq_next(seq, other, 0), 4);
    assert_int_equal(access(file_of("someone-elses"), F_OK), 0);
}

/* Of too many the oldest go, whatever their order in the directory. */
static void too_many_files_are_swept(void **state)
{
    (void)state;
    char name[33];
    const time_t now = time(NULL);
    for (unsigned i = 0; i < CLP_SEQ_FILES_MAX + 20; i++) {
        time_t at = i % 100 == 7 && i < 2000 ? now - 3600 : now;
        snprintf(name, sizeof(name), "%032x", i);
        write_file(name, "5\n");
        assert_int_equal(utimensat(AT_FDCWD, file_of(name),
                                   (struct timespec[2]){{.tv_sec = at}, {.tv_sec = at}}, 0),
                         0);
    }
    reopen();
    for (unsigned i = 0; i < CLP_SEQ_FILES_MAX + 20; i++) {
        snprintf(name, sizeof(name), "%032x", i);
        assert_int_equal(access(file_of(name), F_OK), i % 100 == 7 && i < 2000 ? -1 : 0);
    }
}

/* Without a place for files the shared word still counts. */
static void works_without_a_directory(void **state)
{
    (void)state;
    struct clp_seq *none = NULL;
    assert_true(clp_seq_new("/proc/no/such", &none, &fault) < 0);
    assert_non_null(strstr(fault.text, "state.dir"));
    assert_non_null(none);
    assert_int_equal(clp_seq_next(none, one, 8), 8);
    assert_int_equal(clp_seq_taken(none, one, 8), 0);
    clp_seq_forget(none, one);
    clp_seq_free(none);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

/* An agent was killed between the spool and the file; names of the spool have '_' for '-'. */
static void the_spool_knows_more(void **state)
{
    (void)state;
    static const uint8_t cookie[CLP_GUID_BYTES] = {0xab, 0x94, 0xb1, 0x19, 0x6d, 0xf4, 0xec, 0x4c,
                                                   0xab, 0xf5, 0x7c, 0x3e, 0x31, 0x73, 0x2a, 0x54};
    clp_seq_found(seq, "19b194ab_f46d_4cec_abf5_7c3e31732a54", 6);
    assert_int_equal(clp_seq_next(seq, cookie, 0), 7);
    clp_seq_found(seq, "19b194ab-f46d-4cec-abf5-7c3e31732a54", 2);
    assert_int_equal(clp_seq_next(seq, cookie, 0), 7);
    clp_seq_found(seq, "19b194ab_f46d_4cec_abf5_7c3e31732a54", CLP_SEQ_MAX);
    clp_seq_found(seq, "19b194ab_f46d_4cec_abf5_7c3e31732a5", 9);
    clp_seq_found(seq, "19b194ab_f46d_4cec_abf5_7c3e31732a5g", 9);
    clp_seq_found(seq, "unknown", 9);
    assert_int_equal(clp_seq_next(seq, cookie, 0), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(from_zero_each),           T(kept_over_a_restart),
        T(not_taken_is_not_used_up), T(the_larger_wins),
        T(the_spool_knows_more),     T(files_that_are_no_number_count_as_none),
        T(forgotten_at_the_end),     T(old_files_are_swept),
        T(too_many_files_are_swept), T(works_without_a_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
