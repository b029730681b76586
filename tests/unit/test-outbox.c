#include "tests/unit/clp-cmocka.h"

#include "agent/outbox.h"
#include "base/clock.h"
#include "tests/unit/receiver.h"
#include "tests/unit/upload-fixture.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];
static struct clp_config config;

static int enter(void **state)
{
    (void)state;
    strcpy(root, "/tmp/clp-test-outbox-XXXXXX");
    return mkdtemp(root) && clp_config_init(&config) == 0 ? 0 : -1;
}

static int leave(void **state)
{
    (void)state;
    char command[128];
    clp_config_done(&config);
    (void)snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command);
}

static void configure_spool(const char *spool, const char *uploads)
{
    char text[2048];
    struct clp_config_error error = {""};
    int n = snprintf(text, sizeof(text), "state: { dir: %s }\nspool: { dir: %s%s%s }\n%s", root,
                     *spool == '/' ? "" : root, *spool == '/' ? "" : "/", spool, uploads);
    if (clp_config_read_text(&config, "c.yaml", text, (size_t)n, &error) < 0)
        fail_msg("%s", error.text);
}

static void configure(const char *uploads)
{
    configure_spool("spool", uploads);
}

static struct clp_outbox *open_after(const struct clp_outbox *before)
{
    struct clp_outbox *o = NULL;
    struct clp_fault fault = {0};
    if (clp_outbox_new(&config, before, &o, &fault) < 0)
        fail_msg("%s", fault.text);
    return o;
}

static struct clp_outbox *open_outbox(void)
{
    return open_after(NULL);
}

static void submit(struct clp_outbox *o, uint64_t seq)
{
    struct clp_encoded e = full_profile();
    const struct clp_profile_tag tag = {"team", "payments"};
    struct clp_profile_header h = {.service = "shop",
                                   .env = "",
                                   .version = "",
                                   .host = "",
                                   .runtime_id = FIXTURE_RUNTIME,
                                   .runtime_version = "10.0.1",
                                   .container_id = "",
                                   .git_repository = "",
                                   .git_commit = "abc",
                                   .tags = &tag,
                                   .tag_count = 1,
                                   .pid = 42,
                                   .start_unix_ns = clp_clock_realtime_ns() - CLP_NSEC_PER_SEC,
                                   .end_monotonic_ns = CLP_NSEC_PER_SEC,
                                   .seq = seq};
    assert_int_equal(clp_outbox_submit(o, &h, e.data, e.len, NULL, NULL), 0);
    clp_encoded_done(&e);
}

static uint64_t drain(struct clp_outbox *o)
{
    return clp_outbox_drain(o, clp_clock_monotonic_ns() + 5 * CLP_NSEC_PER_SEC);
}

/* The configuration's reader and the uploader know the same kinds. */
static void every_kind_is_known_to_both(void **state)
{
    (void)state;
    char path[4200];
    struct clp_upload uploads[CLP_CONFIG_UPLOADS_MAX];
    configure("upload:\n  - { kind: directory, path: /x }\n  - { kind: http, url: 'http://a' }\n"
              "  - { kind: pyroscope, url: 'http://b', tenant: t }\n  - { kind: datadog }\n"
              "  - { kind: otlp, url: 'http://c' }\n"
              "  - { kind: parca, url: 'http://d', max_size: 1MiB }\n");
    assert_int_equal(clp_outbox_uploads(&config, path, sizeof(path), uploads), CLP_UPLOAD_KINDS);
    for (int i = 0; i < CLP_UPLOAD_KINDS; i++)
        assert_int_equal(uploads[i].kind, i == 0   ? CLP_UPLOAD_DIRECTORY
                                          : i == 1 ? CLP_UPLOAD_HTTP
                                          : i == 2 ? CLP_UPLOAD_PYROSCOPE
                                          : i == 3 ? CLP_UPLOAD_DATADOG
                                          : i == 4 ? CLP_UPLOAD_OTLP
                                                   : CLP_UPLOAD_PARCA);
    assert_string_equal(uploads[2].tenant, "t");
    assert_int_equal(uploads[5].size_max, 1 << 20);
}

static void without_uploads_there_is_a_directory(void **state)
{
    (void)state;
    struct clp_outbox_lane lane;
    configure("");
    struct clp_outbox *o = open_outbox();
    submit(o, 0);
    uint64_t until = clp_clock_monotonic_ns() + 10 * CLP_NSEC_PER_SEC;
    do
        assert_int_equal(clp_outbox_lanes(o, &lane, 1), 1);
    while (lane.delivered == 0 && clp_clock_monotonic_ns() < until);
    assert_int_equal(lane.delivered, 1);
    assert_int_equal(lane.waiting, 0);
    assert_string_equal(lane.name, "upload 1 (directory)");
    assert_string_equal(lane.last_error, "");
    assert_int_equal(drain(o), 0);
    clp_outbox_free(o);
}

static size_t files_of(const char *pattern)
{
    char path[256];
    glob_t found = {0};
    (void)snprintf(path, sizeof(path), "%s/%s", root, pattern);
    size_t n = glob(path, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    globfree(&found);
    return n;
}

static uint64_t in_ten_seconds(void)
{
    return clp_clock_monotonic_ns() + 10 * CLP_NSEC_PER_SEC;
}

static void wait_for_files(const char *pattern, size_t count)
{
    for (uint64_t until = in_ten_seconds();
         files_of(pattern) < count && clp_clock_monotonic_ns() < until;)
        (void)usleep(1000);
    assert_int_equal(files_of(pattern), count);
}

static struct receiver down = {.reply = "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"};

/* An outbox whose intake is down, and three profiles; its configuration goes to *ret. */
static struct clp_outbox *with_three(const char *spool, struct clp_config *ret)
{
    char text[128];
    (void)snprintf(text, sizeof(text), "upload:\n  - { kind: http, url: 'http://127.0.0.1:%u/' }\n",
                   down.port);
    configure_spool(spool, text);
    struct clp_outbox *o = open_outbox();
    for (uint64_t seq = 0; seq < 3; seq++)
        submit(o, seq);
    *ret = config;
    assert_int_equal(clp_config_init(&config), 0);
    return o;
}

static void configure_directory(const char *spool)
{
    char text[128];
    (void)snprintf(text, sizeof(text), "upload:\n  - { kind: directory, path: %s/p }\n", root);
    configure_spool(spool, text);
}

#define NO_DIRECTORY "/proc/no/such"

/* A wrong address is put right, the spool is moved: all that waits goes to the new destination, at
 * once, from wherever it is kept. */
static void what_waits_goes_with_the_new_settings(void **state)
{
    (void)state;
    static const char *const spools[][2] = {
        {"spool", "spool"},      {"spool", "other/../spool"},  {"spool", "another"},
        {NO_DIRECTORY, "spool"}, {NO_DIRECTORY, NO_DIRECTORY},
    };
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/other", root);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(receiver_start(&down), 0);
    for (size_t i = 0; i < CLP_ARRAY_LEN(spools); i++) {
        struct clp_config first;
        struct clp_outbox_lane lane;
        struct clp_outbox *old = with_three(spools[i][0], &first);
        configure_directory(spools[i][1]);
        struct clp_outbox *fresh = open_after(old);
        assert_null(clp_outbox_replace(old, fresh, clp_clock_monotonic_ns()));
        clp_config_done(&first);
        wait_for_files("p/*-cpu-*", 3);
        submit(fresh, 3);
        wait_for_files("p/*-cpu-*", 4);
        for (uint64_t until = in_ten_seconds(); clp_clock_monotonic_ns() < until;)
            if (clp_outbox_lanes(fresh, &lane, 1) == 1 && lane.delivered == 4)
                break;
        assert_int_equal(lane.delivered, 4);
        assert_int_equal(lane.lost + lane.crowded_out, 0);
        assert_int_equal(drain(fresh), 0);
        clp_outbox_free(fresh);
        assert_int_equal(files_of("*/*.chunk") + files_of("*/*.sent") + files_of("*/*.bad"), 0);
        (void)snprintf(path, sizeof(path), "rm -rf %s/p", root);
        assert_int_equal(system(path), 0);
    }
    receiver_stop(&down);
}

/* Nobody else's directory is taken for ours because we have one, too. */
static void a_spool_of_another_agent_is_refused(void **state)
{
    (void)state;
    struct clp_fault fault = {0};
    struct clp_outbox *fresh = NULL;
    struct clp_config first;
    configure_directory("theirs");
    struct clp_outbox *theirs = open_outbox();
    first = config;
    assert_int_equal(clp_config_init(&config), 0);
    configure_directory("ours");
    struct clp_outbox *ours = open_outbox();
    struct clp_config second = config;
    assert_int_equal(clp_config_init(&config), 0);
    configure_directory("theirs");
    assert_int_equal(clp_outbox_new(&config, ours, &fresh, &fault), -EBUSY);
    assert_non_null(strstr(fault.text, "another agent uses the spool"));
    clp_outbox_free(ours);
    clp_outbox_free(theirs);
    clp_config_done(&first);
    clp_config_done(&second);
}

/* What no rename moves stays where it is, whole. */
static void files_on_another_file_system_stay(void **state)
{
    (void)state;
    struct clp_config first;
    struct stat here, there;
    char shm[] = "/dev/shm/clp-test-outbox-XXXXXX", command[128];
    if (!mkdtemp(shm))
        skip();
    (void)snprintf(command, sizeof(command), "rm -rf %s", shm);
    if (stat(shm, &there) < 0 || stat(root, &here) < 0 || here.st_dev == there.st_dev) {
        assert_int_equal(system(command), 0);
        skip();
    }
    assert_int_equal(receiver_start(&down), 0);
    struct clp_outbox *old = with_three("spool", &first);
    configure_directory(shm);
    struct clp_outbox *fresh = open_after(old);
    clp_outbox_replace(old, fresh, 0);
    assert_int_equal(files_of("spool/*.chunk"), 3);
    assert_int_equal(drain(fresh), 0);
    clp_outbox_free(fresh);
    clp_config_done(&first);
    receiver_stop(&down);
    assert_int_equal(system(command), 0);
}

static void check_says_it_in_words(void **state)
{
    (void)state;
    static struct receiver r = {.reply = "HTTP/1.1 401 Who\r\nContent-Length: 0\r\n\r\n"};
    char upload[256], *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    assert_int_equal(receiver_start(&r), 0);
    (void)snprintf(upload, sizeof(upload),
                   "upload:\n  - { kind: pyroscope, url: 'http://127.0.0.1:%u/' }\n"
                   "  - { kind: directory, path: %s/p }\n  - { kind: http, url: 'ftp://x' }\n",
                   r.port, root);
    configure(upload);
    assert_int_equal(clp_outbox_check(&config, out), 2);
    (void)fclose(out);
    assert_non_null(strstr(text, "answered 401 (check the user, password, token or tenant)"));
    assert_non_null(strstr(text, "upload directory: a test profile was taken by "));
    assert_non_null(strstr(text, "upload http: cannot work: it needs a url"));
    free(text);
    receiver_stop(&r);
}

static int setup(void **state)
{
    (void)state;
    return clp_uploader_setup();
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, enter, leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIR(every_kind_is_known_to_both),           IN_DIR(without_uploads_there_is_a_directory),
        IN_DIR(what_waits_goes_with_the_new_settings), IN_DIR(a_spool_of_another_agent_is_refused),
        IN_DIR(files_on_another_file_system_stay),     IN_DIR(check_says_it_in_words),
    };
    (void)setenv("no_proxy", "*", 1);
    return cmocka_run_group_tests(tests, setup, NULL);
}
