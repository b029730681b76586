#include "tests/unit/clp-cmocka.h"

#include "agent/outbox.h"
#include "base/clock.h"
#include "tests/unit/receiver.h"
#include "tests/unit/upload-fixture.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static void configure(const char *uploads)
{
    char text[2048];
    struct clp_config_error error = {""};
    int n = snprintf(text, sizeof(text), "state: { dir: %s }\nspool: { dir: %s/spool }\n%s", root,
                     root, uploads);
    if (clp_config_read_text(&config, "c.yaml", text, (size_t)n, &error) < 0)
        fail_msg("%s", error.text);
}

static struct clp_outbox *open_outbox(void)
{
    struct clp_outbox *o = NULL;
    struct clp_fault fault = {0};
    if (clp_outbox_new(&config, &o, &fault) < 0)
        fail_msg("%s", fault.text);
    return o;
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
    assert_int_equal(clp_outbox_submit(o, &h, e.data, e.len), 0);
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

/* As a reload does it: the new one is made before the old one goes. */
static void a_second_outbox_waits_for_the_first(void **state)
{
    (void)state;
    static struct receiver down = {.reply = "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"};
    char upload[128];
    struct clp_outbox_lane lane;
    assert_int_equal(receiver_start(&down), 0);
    (void)snprintf(upload, sizeof(upload),
                   "upload:\n  - { kind: http, url: 'http://127.0.0.1:%u/' }\n", down.port);
    configure(upload);
    struct clp_outbox *old = open_outbox();
    submit(old, 0);
    struct clp_outbox *fresh = open_outbox();
    assert_int_equal(clp_outbox_lanes(fresh, &lane, 1), 0);
    assert_int_equal(drain(old), 0);
    clp_outbox_free(old);
    down.reply = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    submit(fresh, 1);
    uint64_t until = clp_clock_monotonic_ns() + 10 * CLP_NSEC_PER_SEC;
    do
        assert_int_equal(clp_outbox_lanes(fresh, &lane, 1), 1);
    while (lane.delivered < 2 && clp_clock_monotonic_ns() < until);
    assert_int_equal(lane.delivered, 2);
    clp_outbox_free(fresh);
    receiver_stop(&down);
}

static bool has_file(const char *pattern)
{
    glob_t found = {0};
    int r = glob(pattern, 0, NULL, &found);
    globfree(&found);
    return r == 0;
}

/* Other destinations, and nothing new to send: what the old one leaves is taken over at once. */
static void a_second_outbox_begins_when_it_is_woken(void **state)
{
    (void)state;
    static struct receiver down = {.reply = "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"};
    char text[512];
    assert_int_equal(receiver_start(&down), 0);
    (void)snprintf(text, sizeof(text), "upload:\n  - { kind: http, url: 'http://127.0.0.1:%u/' }\n",
                   down.port);
    configure(text);
    struct clp_outbox *old = open_outbox();
    submit(old, 0);
    struct clp_config first = config;
    assert_int_equal(clp_config_init(&config), 0);
    (void)snprintf(text, sizeof(text), "upload:\n  - { kind: directory, path: %s/p }\n", root);
    configure(text);
    struct clp_outbox *fresh = open_outbox();
    assert_int_equal(drain(old), 0);
    clp_outbox_free(old);
    clp_config_done(&first);
    (void)snprintf(text, sizeof(text), "%s/p/*-cpu-*.pb.gz", root);
    assert_false(has_file(text));
    clp_outbox_wake(fresh);
    uint64_t until = clp_clock_monotonic_ns() + 10 * CLP_NSEC_PER_SEC;
    while (!has_file(text) && clp_clock_monotonic_ns() < until)
        (void)usleep(1000);
    assert_true(has_file(text));
    clp_outbox_free(fresh);
    receiver_stop(&down);
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
        IN_DIR(every_kind_is_known_to_both),
        IN_DIR(without_uploads_there_is_a_directory),
        IN_DIR(a_second_outbox_waits_for_the_first),
        IN_DIR(a_second_outbox_begins_when_it_is_woken),
        IN_DIR(check_says_it_in_words),
    };
    (void)setenv("no_proxy", "*", 1);
    return cmocka_run_group_tests(tests, setup, NULL);
}
