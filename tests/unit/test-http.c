#include "tests/unit/clp-cmocka.h"

#include "base/clock.h"
#include "pprof/gzip.h"
#include "tests/unit/receiver.h"
#include "tests/unit/upload-fixture.h"
#include "uploader/uploader.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct clp_encoded payload;

static int send_item(struct clp_intake *in, struct clp_upload_result *result)
{
    struct clp_upload_header h = header_of(7);
    h.service = "shop/\r\nEvil: yes";
    h.start_unix_ns = 1700000000000000000;
    return clp_intake_send(in, &h, payload.data, payload.len, result);
}

static struct clp_intake *intake_for(uint16_t port, const char *user, uint64_t timeout_ns)
{
    static const char *const headers[] = {"Authorization: Bearer t0ken", "X-Tenant: a"};
    char url[128];
    snprintf(url, sizeof(url), "http://%s127.0.0.1:%u/in?key=s3cret", user, port);
    struct clp_upload u = {.kind = CLP_UPLOAD_HTTP,
                           .url = url,
                           .headers = headers,
                           .header_count = 2,
                           .timeout_ns = timeout_ns};
    struct clp_intake *up = NULL;
    assert_int_equal(clp_intake_open(&u, &up, NULL), 0);
    return up;
}

static void assert_no_secrets(const struct clp_upload_result *result)
{
    assert_null(strstr(result->text, "s3cret"));
    assert_null(strstr(result->text, "t0ken"));
    assert_null(strstr(result->text, "passw0rd"));
    for (const char *c = result->text; *c; c++)
        assert_true((unsigned char)*c >= 0x20);
}

/* Sends once to a receiver that follows `r`. */
static int send_once(struct receiver *r, uint64_t timeout_ns, struct clp_upload_result *result)
{
    assert_int_equal(receiver_start(r), 0);
    struct clp_intake *up = intake_for(r->port, "", timeout_ns);
    int sent = send_item(up, result);
    clp_intake_close(up);
    receiver_stop(r);
    assert_no_secrets(result);
    return sent;
}

static void ok_is_done(void **state)
{
    (void)state;
    static struct receiver r = {.reply = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"};
    struct clp_upload_result result;
    assert_int_equal(send_once(&r, 0, &result), 0);
    assert_int_equal(result.http_status, 200);
    assert_int_equal(result.outcome, CLP_OUTCOME_DONE);
    char where[64];
    snprintf(where, sizeof(where), "http://127.0.0.1:%u/in", r.port);
    assert_string_equal(result.text, where);
    assert_int_equal(r.requests, 1);
    assert_memory_equal(r.head, "POST /in?key=s3cret HTTP/1.1\r\n", 30);
    assert_true(r.body_len > 20);
    assert_memory_equal(r.body, "\x1f\x8b\x08", 3);
}

static void the_head_is_as_documented(void **state)
{
    (void)state;
    static struct receiver r = {.reply = "HTTP/1.1 204 No Content\r\n\r\n"};
    struct clp_upload_result result;
    assert_int_equal(send_once(&r, 0, &result), 0);
    assert_string_equal(receiver_header(&r, "Content-Type"), "application/octet-stream");
    assert_memory_equal(receiver_header(&r, "User-Agent"), "clrpulse/", 9);
    assert_string_equal(receiver_header(&r, "Authorization"), "Bearer t0ken");
    assert_string_equal(receiver_header(&r, "X-Tenant"), "a");
    assert_string_equal(receiver_header(&r, "Clrpulse-Service"), "shop___Evil__yes");
    assert_string_equal(receiver_header(&r, "Clrpulse-Kind"), "cpu");
    assert_string_equal(receiver_header(&r, "Clrpulse-Pid"), "4242");
    assert_string_equal(receiver_header(&r, "Clrpulse-Start"), "2023-11-14T22:13:20.000Z");
    assert_string_equal(receiver_header(&r, "Clrpulse-Seq"), "7");
    assert_null(receiver_header(&r, "Expect"));
    assert_null(receiver_header(&r, "Evil"));
    assert_null(receiver_header(&r, "Transfer-Encoding"));
}

static void retry_after_is_bounded(void **state)
{
    (void)state;
    static struct receiver r = {
        .reply = "HTTP/1.1 503 Busy\r\nRetry-After: 17\r\nContent-Length: 0\r\n\r\n"};
    static struct receiver for_ever = {
        .reply = "HTTP/1.1 429 Busy\r\nRetry-After: 99999999\r\nContent-Length: 0\r\n\r\n"};
    struct clp_upload_result result;
    assert_int_equal(send_once(&r, 0, &result), -EREMOTEIO);
    assert_int_equal(result.retry_after_ns, 17 * CLP_NSEC_PER_SEC);
    assert_int_equal(send_once(&for_ever, 0, &result), -EREMOTEIO);
    assert_int_equal(result.retry_after_ns, 3600 * CLP_NSEC_PER_SEC);
}

static void nobody_listens(void **state)
{
    (void)state;
    /* A port that is bound but not listened on refuses, and nobody else can take it meanwhile. */
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    struct clp_intake *up = intake_for(ntohs(a.sin_port), "me:passw0rd@", 0);
    struct clp_upload_result result;
    assert_int_equal(send_item(up, &result), -EREMOTEIO);
    assert_int_equal(result.outcome, CLP_OUTCOME_LATER);
    assert_int_equal(result.http_status, 0);
    assert_non_null(strstr(result.text, "cannot send to http://127.0.0.1:"));
    assert_no_secrets(&result);
    clp_intake_close(up);
    (void)close(fd);
}

static void silence_times_out(void **state)
{
    (void)state;
    static struct receiver r = {.reply = NULL};
    struct clp_upload_result result;
    uint64_t before = clp_clock_monotonic_ns();
    assert_int_equal(send_once(&r, 300 * CLP_NSEC_PER_MSEC, &result), -EREMOTEIO);
    uint64_t took = clp_clock_monotonic_ns() - before;
    assert_true(took >= 290 * CLP_NSEC_PER_MSEC && took < 10 * CLP_NSEC_PER_SEC);
    assert_int_equal(result.outcome, CLP_OUTCOME_LATER);
    assert_int_equal(result.http_status, 0);
}

static void a_slow_reply_counts_once_its_status_is_there(void **state)
{
    (void)state;
    /* The head comes at once in ~0.1 s, the body would take 100 s. */
    static char reply[4096] = "HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n";
    static struct receiver r = {.reply = reply, .reply_len = sizeof(reply), .drip_ms = 2};
    struct clp_upload_result result;
    assert_int_equal(send_once(&r, 1500 * CLP_NSEC_PER_MSEC, &result), 0);
    assert_int_equal(result.http_status, 200);
    assert_int_equal(result.outcome, CLP_OUTCOME_DONE);
}

static void an_endless_reply_is_cut_off(void **state)
{
    (void)state;
    static char reply[2 << 20] =
        "HTTP/1.1 400 Bad\r\nContent-Length: 900000000\r\n\r\nwhat is this";
    static struct receiver r = {.reply = reply, .reply_len = sizeof(reply)};
    struct clp_upload_result result;
    memset(reply + strlen(reply), 'x', sizeof(reply) - strlen(reply));
    uint64_t before = clp_clock_monotonic_ns();
    assert_int_equal(send_once(&r, 0, &result), -EREMOTEIO);
    assert_true(clp_clock_monotonic_ns() - before < 9 * CLP_NSEC_PER_SEC);
    assert_int_equal(result.http_status, 400);
    assert_non_null(strstr(result.text, "what is this"));
    assert_true(strlen(result.text) < CLP_UPLOAD_TEXT_BYTES);
}

static void a_reply_before_the_body_was_read_counts(void **state)
{
    (void)state;
    static struct receiver r = {
        .reply = "HTTP/1.1 413 Big\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        .ignore_body = true};
    struct clp_upload_result result;
    assert_int_equal(send_once(&r, 0, &result), -EREMOTEIO);
    assert_int_equal(result.http_status, 413);
    assert_int_equal(result.outcome, CLP_OUTCOME_SMALLER);
}

static void noise_is_no_reply(void **state)
{
    (void)state;
    static struct receiver r = {.reply = "SSH-2.0-x\r\n\r\n", .ignore_body = true};
    struct clp_upload_result result;
    assert_true(send_once(&r, 0, &result) < 0);
    assert_int_equal(result.http_status, 0);
    assert_int_equal(result.outcome, CLP_OUTCOME_LATER);
}

static void wrong_destinations_are_refused(void **state)
{
    (void)state;
    static const char *const urls[] = {NULL,
                                       "",
                                       "ftp://host/x",
                                       "/only/a/path",
                                       "file:///etc/passwd",
                                       "http://",
                                       "http://host:99999/",
                                       "http://host:0/",
                                       "http:///path",
                                       "http:/host",
                                       "http://b\xc3\xbc"
                                       "cher.example/",
                                       "http://u:p@x:y@host/"};
    static const char *const bad_headers[] = {"no colon", "A: b\r\nC: d", ": x", "A b: c"};
    struct clp_intake *up = NULL;
    for (size_t i = 0; i < CLP_ARRAY_LEN(urls); i++) {
        const char *why = NULL;
        struct clp_upload u = {.kind = CLP_UPLOAD_HTTP, .url = urls[i]};
        assert_int_equal(clp_intake_open(&u, &up, &why), -EINVAL);
        assert_non_null(strstr(why, "url"));
    }
    for (size_t i = 0; i < CLP_ARRAY_LEN(bad_headers); i++) {
        const char *why = NULL;
        struct clp_upload u = {.kind = CLP_UPLOAD_HTTP,
                               .url = "http://h/",
                               .headers = &bad_headers[i],
                               .header_count = 1};
        assert_int_equal(clp_intake_open(&u, &up, &why), -EINVAL);
        assert_non_null(strstr(why, "header"));
    }
    char path[128] = "unix:///";
    const char *why = NULL;
    struct clp_upload u = {.kind = CLP_UPLOAD_HTTP, .url = path};
    memset(path + 8, 's', 107); /* and the '/' before */
    assert_int_equal(clp_intake_open(&u, &up, &why), -EINVAL);
    assert_non_null(strstr(why, "107 bytes"));
    path[7 + 107] = '\0';
    assert_int_equal(clp_intake_open(&u, &up, &why), 0);
    up = clp_intake_close(up);
    assert_null(up);
    u.url = "http://m\xc3\xbc:p\xc3\xa4@host/b\xc3\xbc"
            "cher";
    assert_int_equal(clp_intake_open(&u, &up, &why), 0);
    up = clp_intake_close(up);
}

/* Sends once through a proxy, of the setting or of the environment, from which none may be spared.
 */
static void send_by_proxy(const char *setting, const char *variable, const char *value,
                          struct clp_upload_result *result)
{
    struct clp_intake *in = NULL;
    struct clp_upload u = {.kind = CLP_UPLOAD_HTTP,
                           .url = "http://127.0.0.1:9/",
                           .proxy = setting,
                           .timeout_ns = 2 * CLP_NSEC_PER_SEC};
    (void)unsetenv("no_proxy");
    if (variable)
        (void)setenv(variable, value, 1);
    assert_int_equal(clp_intake_open(&u, &in, NULL), 0);
    assert_int_equal(send_item(in, result), -EREMOTEIO);
    clp_intake_close(in);
    if (variable)
        (void)unsetenv(variable);
    (void)setenv("no_proxy", "*", 1);
}

static void an_odd_proxy_is_not_shown(void **state)
{
    (void)state;
    static const char *const proxies[] = {
        "http://user:passw0rd/ss@127.0.0.1:9",  "http://user:77/passw0rd@127.0.0.1:9",
        "http://user:passw0rd@127.0.0.1:99999", "http://user:passw0rd@127.0.0.1:port",
        "gopher://user:passw0rd@127.0.0.1:9",   "http://user:passw0rd@ho st:9"};
    static const char *const variables[] = {NULL, "http_proxy", "all_proxy", "ALL_PROXY"};
    for (size_t i = 0; i < CLP_ARRAY_LEN(proxies); i++)
        for (size_t k = 0; k < CLP_ARRAY_LEN(variables); k++) {
            struct clp_upload_result result;
            send_by_proxy(k ? NULL : proxies[i], variables[k], proxies[i], &result);
            assert_no_secrets(&result);
            assert_null(strstr(result.text, "77"));
            assert_non_null(strstr(result.text, "proxy (or http_proxy"));
            assert_int_equal(result.outcome, CLP_OUTCOME_LATER);
        }
    struct clp_upload_result result;
    send_by_proxy("http://user:passw0rd@127.0.0.1:9/", NULL, NULL, &result);
    assert_no_secrets(&result);
    assert_null(strstr(result.text, "http_proxy"));
}

/* Some show the request in what they answer: in words, as it came, or cut. */
static void an_echo_shows_no_secrets(void **state)
{
    (void)state;
    static struct receiver r;
    static const char *const headers[] = {"X-Name: s3cr", "X-Key: s3cret-key"};
    static const char body[] =
        "POST /in?key=s3cret-query with Authorization: Basic cGFzczpwYXNzdzByZA== (pass:passw0rd), "
        "X-Key: s3cret-key, Bearer t0ken, too little: s3cret-k";
    char reply[512], url[128];
    struct clp_upload_result result;
    struct clp_intake *in = NULL;
    memset(&r, 0, sizeof(r));
    (void)snprintf(reply, sizeof(reply), "HTTP/1.1 403 No\r\nContent-Length: %zu\r\n\r\n%s",
                   strlen(body), body);
    r.reply = reply;
    assert_int_equal(receiver_start(&r), 0);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/in?key=s3cret-query", r.port);
    struct clp_upload u = {.kind = CLP_UPLOAD_HTTP,
                           .url = url,
                           .headers = headers,
                           .header_count = 2,
                           .user = "pass",
                           .password = "passw0rd",
                           .token = "t0ken"};
    assert_int_equal(clp_intake_open(&u, &in, NULL), 0);
    assert_int_equal(send_item(in, &result), -EREMOTEIO);
    clp_intake_close(in);
    receiver_stop(&r);
    assert_no_secrets(&result);
    assert_null(strstr(result.text, "cGFzczpwYXNzdzByZA"));
    assert_non_null(strstr(result.text, "X-Key: **********, Bearer *****, too little: ********"));
}

static void an_agent_may_have_an_address_of_six(void **state)
{
    (void)state;
    static const char *const hosts[][2] = {
        {"::1", "http://[::1]:8126/profiling/v1/input"},
        {"[fe80::1]", "http://[fe80::1]:8126/profiling/v1/input"},
        {"node", "http://node:8126/profiling/v1/input"}};
    for (size_t i = 0; i < CLP_ARRAY_LEN(hosts); i++) {
        struct clp_upload u = {.kind = CLP_UPLOAD_DATADOG};
        struct clp_intake *in = NULL;
        (void)setenv("DD_AGENT_HOST", hosts[i][0], 1);
        assert_int_equal(clp_intake_open(&u, &in, NULL), 0);
        assert_string_equal(clp_intake_where(in), hosts[i][1]);
        clp_intake_close(in);
    }
    (void)unsetenv("DD_AGENT_HOST");
}

static bool body_has(const struct receiver *r, const char *text)
{
    return memmem(r->body, r->body_len, text, strlen(text)) != NULL;
}

/* Sends `e` with three tags, of which the first is `tag`; `r` has the request. */
static void send_tagged(struct receiver *r, enum clp_upload_kind kind, const struct clp_encoded *e,
                        const char *tag)
{
    char url[64];
    const char *tags[] = {tag, "empty:", "team:a b"};
    struct clp_upload_result result;
    struct clp_intake *in = NULL;
    assert_int_equal(receiver_start(r), 0);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/", r->port);
    struct clp_upload u = {.kind = kind, .url = url};
    struct clp_upload_header header = header_of(3);
    header.tags = tags;
    header.tag_count = CLP_ARRAY_LEN(tags);
    assert_int_equal(clp_intake_open(&u, &in, NULL), 0);
    assert_int_equal(clp_intake_send(in, &header, e->data, e->len, &result), 0);
    clp_intake_close(in);
    receiver_stop(r);
}

/* Numbers that only look like totals are none; a tag is cut between two characters. */
static void datadog_gets_totals_and_whole_tags(void **state)
{
    (void)state;
    static struct receiver r = {.reply = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"};
    static const char *const comments[] = {"process=4711",
                                           "profile_seq=3",
                                           "service=2048",
                                           "version=7 of nine",
                                           "=5 count",
                                           "samples=12 count",
                                           "heap_gen2=9 bytes",
                                           "exceptions[System.A\"]=2 count",
                                           "process_cpu=4000 nanoseconds"};
    static const struct clp_value_type cpu = {"cpu", "nanoseconds"};
    char tag[256] = "k:"; /* 199 bytes, then characters of two */
    memset(tag + 2, 'x', 197);
    strcat(tag, "\xc3\xa9\xc3\xa9");
    struct clp_profile *p = window_profile(&cpu, 1);
    struct clp_encoded e;
    clp_profile_add(p, frames_of(p, "Shop.Cart.Add"), 0, (double[]){3000});
    for (size_t i = 0; i < CLP_ARRAY_LEN(comments); i++)
        assert_int_equal(clp_profile_comment(p, "%s", comments[i]), 0);
    assert_int_equal(clp_profile_encode(p, NULL, &e), 0);
    clp_profile_free(p);
    send_tagged(&r, CLP_UPLOAD_DATADOG, &e, tag);
    clp_encoded_done(&e);
    assert_true(body_has(&r, "\r\n\r\n[[\"samples\",12],[\"dotnet_gc_gen2_size\",9],[\"exceptions["
                             "System.A\\\"]\",2],[\"process_cpu\",4000]]\r\n"));
    assert_true(body_has(&r, "xxx,team:a_b,env:production,"));
    assert_false(body_has(&r, "empty:"));
}

/* Half a character would make the whole message one that no reader of protobuf takes. */
static void otlp_gets_whole_keys(void **state)
{
    (void)state;
    static struct receiver r = {.reply = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"};
    char tag[256] = "", want[256] = "\x0a\x7e"; /* of field 1, 126 bytes */
    uint8_t *body = NULL;
    size_t len;
    memset(tag, 'k', 126);
    memset(want + 2, 'k', 126);
    strcat(want, "\x12"); /* field 2 */
    strcat(tag, "\xc3\xa9\xc3\xa9:v");
    send_tagged(&r, CLP_UPLOAD_OTLP, &payload, tag);
    assert_int_equal(clp_gunzip(r.body, r.body_len, 1 << 20, &body, &len), 0);
    assert_non_null(memmem(body, len, want, strlen(want)));
    free(body);
}

static int setup(void **state)
{
    (void)state;
    payload = small_profile();
    return clp_uploader_setup();
}

static int teardown(void **state)
{
    (void)state;
    clp_uploader_teardown();
    clp_encoded_done(&payload);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ok_is_done),
        cmocka_unit_test(the_head_is_as_documented),
        cmocka_unit_test(retry_after_is_bounded),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(silence_times_out),
        cmocka_unit_test(a_slow_reply_counts_once_its_status_is_there),
        cmocka_unit_test(an_endless_reply_is_cut_off),
        cmocka_unit_test(a_reply_before_the_body_was_read_counts),
        cmocka_unit_test(noise_is_no_reply),
        cmocka_unit_test(wrong_destinations_are_refused),
        cmocka_unit_test(an_odd_proxy_is_not_shown),
        cmocka_unit_test(an_echo_shows_no_secrets),
        cmocka_unit_test(an_agent_may_have_an_address_of_six),
        cmocka_unit_test(datadog_gets_totals_and_whole_tags),
        cmocka_unit_test(otlp_gets_whole_keys),
    };
    /* A proxy of the machine's environment would stand between us and the receiver. */
    (void)setenv("no_proxy", "*", 1);
    return cmocka_run_group_tests(tests, setup, teardown);
}
