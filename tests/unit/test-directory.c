#include "tests/unit/clp-cmocka.h"

#include "base/file.h"
#include "tests/unit/upload-fixture.h"
#include "uploader/uploader.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];

static int enter(void **state)
{
    (void)state;
    strcpy(root, "/tmp/clp-test-directory-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static void empty(const char *dir)
{
    char path[600];
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        if (e->d_name[0] != '.' && unlink(path) < 0) {
            empty(path);
            (void)rmdir(path);
        }
    }
    if (d)
        (void)closedir(d);
}

static int leave(void **state)
{
    (void)state;
    empty(root);
    return rmdir(root);
}

static struct clp_intake *intake_in(const char *path)
{
    struct clp_intake *up = NULL;
    struct clp_upload u = {.kind = CLP_UPLOAD_DIRECTORY, .path = path};
    assert_int_equal(clp_intake_open(&u, &up, NULL), 0);
    return up;
}

static struct clp_upload_header item_of(const char *service, uint64_t seq)
{
    struct clp_upload_header h = header_of(seq);
    h.service = service;
    h.pid = 17;
    h.start_unix_ns = 1700000000000000000;
    return h;
}

static int send_item(struct clp_intake *in, const struct clp_upload_header *h,
                     struct clp_upload_result *result)
{
    struct clp_encoded e = small_profile();
    int r = clp_intake_send(in, h, e.data, e.len, result);
    clp_encoded_done(&e);
    return r;
}

static void writes_one_file_for_each_profile(void **state)
{
    (void)state;
    char dir[128], want[256];
    char *got = NULL;
    size_t len = 0;
    struct clp_upload_result result;
    snprintf(dir, sizeof(dir), "%s/made/when/missing", root);
    struct clp_intake *up = intake_in(dir);
    struct clp_upload_header item = item_of("shop", 3);
    assert_int_equal(send_item(up, &item, &result), 0);
    snprintf(want, sizeof(want), "%s/shop-17-cpu-20231114T221320Z-3.pb.gz", dir);
    assert_string_equal(result.text, want);
    assert_int_equal(result.outcome, CLP_OUTCOME_DONE);
    assert_int_equal(clp_file_read(want, 100000, &got, &len), 0);
    assert_memory_equal(got, "\x1f\x8b", 2);
    free(got);
    struct stat st;
    assert_int_equal(stat(want, &st), 0);
    assert_int_equal(st.st_mode & 07, 0);
    clp_intake_close(up);
}

static void names_cannot_leave_the_directory(void **state)
{
    (void)state;
    static char big[1000];
    struct clp_upload_result result;
    struct clp_intake *up = intake_in(root);
    struct clp_upload_header item = item_of("../../etc/pass wd\n\xff", 0);
    assert_int_equal(send_item(up, &item, &result), 0);
    assert_string_equal(result.text + strlen(root),
                        "/_._.._etc_pass_wd____-17-cpu-20231114T221320Z-0.pb.gz");
    memset(big, 'x', sizeof(big) - 1);
    item = item_of(big, UINT64_MAX);
    item.pid = INT32_MIN;
    item.start_unix_ns = UINT64_MAX;
    assert_int_equal(send_item(up, &item, &result), 0);
    item = item_of("", 0);
    assert_int_equal(send_item(up, &item, &result), 0);
    assert_non_null(strstr(result.text, "/unknown-17-cpu-"));
    clp_intake_close(up);
}

static void a_failure_says_where_and_may_be_tried_again(void **state)
{
    (void)state;
    char path[128];
    struct clp_upload_result result;
    snprintf(path, sizeof(path), "%s/file", root);
    assert_int_equal(clp_file_write(path, "", 0, 0600), 0);
    struct clp_intake *up = intake_in(path);
    struct clp_upload_header item = item_of("shop", 3);
    assert_int_equal(send_item(up, &item, &result), -EREMOTEIO);
    assert_int_equal(result.outcome, CLP_OUTCOME_LATER);
    assert_non_null(strstr(result.text, "cannot write shop-17-cpu-"));
    assert_non_null(strstr(result.text, path));
    assert_non_null(strstr(result.text, "Not a directory"));
    clp_intake_close(up);
}

static void kinds_have_names(void **state)
{
    (void)state;
    enum clp_upload_kind kind = CLP_UPLOAD_DIRECTORY;
    struct clp_intake *up = NULL;
    const char *why = NULL;
    assert_int_equal(clp_upload_parse_kind("http", &kind), 0);
    assert_int_equal(kind, CLP_UPLOAD_HTTP);
    assert_int_equal(clp_upload_parse_kind("pigeon", &kind), -EINVAL);
    assert_string_equal(clp_upload_kind_name(CLP_UPLOAD_DIRECTORY), "directory");
    assert_string_equal(clp_upload_kind_name((enum clp_upload_kind)99), "unknown");
    struct clp_upload u = {.kind = CLP_UPLOAD_DIRECTORY};
    assert_int_equal(clp_intake_open(&u, &up, &why), -EINVAL);
    assert_string_equal(why, "kind directory needs a path");
    u.kind = (enum clp_upload_kind)99;
    assert_int_equal(clp_intake_open(&u, &up, &why), -EINVAL);
    assert_null(up);
    assert_null(clp_intake_close(NULL));
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, enter, leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIR(writes_one_file_for_each_profile),
        IN_DIR(names_cannot_leave_the_directory),
        IN_DIR(a_failure_says_where_and_may_be_tried_again),
        cmocka_unit_test(kinds_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
