/* What becomes of a profile after each reply, over a real connection. */
#include "tests/unit/clp-cmocka.h"

#include "tests/unit/receiver.h"
#include "tests/unit/upload-fixture.h"
#include "uploader/uploader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct clp_encoded payload;

struct reply_case {
    const char *name;
    const char *status; /* the line behind HTTP/1.1 */
    const char *headers, *body;
    enum clp_upload_kind kind;
    enum clp_outcome outcome;
    const char *word; /* in the sentence */
};

#define HTTP CLP_UPLOAD_HTTP
#define PYROSCOPE CLP_UPLOAD_PYROSCOPE
#define OTLP CLP_UPLOAD_OTLP
#define DONE CLP_OUTCOME_DONE
#define LATER CLP_OUTCOME_LATER
#define SUSPECT CLP_OUTCOME_SUSPECT
#define SMALLER CLP_OUTCOME_SMALLER
#define DROP CLP_OUTCOME_DROP

static const struct reply_case cases[] = {
    {"200", "200 OK", "", "", HTTP, DONE, "http://"},
    {"202", "202 Accepted", "", "", HTTP, DONE, "http://"},
    {"204", "204 No Content", "", "", HTTP, DONE, "http://"},
    {"400 certificate", "400 Bad Request", "", "No required SSL certificate was sent", HTTP, DROP,
     "cert_file and key_file"},
    {"302", "302 Found", "Location: /x\r\n", "", HTTP, DROP, "redirects are not followed"},
    {"400", "400 Bad Request", "", "no such field", HTTP, DROP, "no such field"},
    {"400 too large", "400 Bad Request", "", "profile too large", HTTP, SMALLER, "too large"},
    {"401", "401 Unauthorized", "", "who?", HTTP, DROP, "token"},
    {"403", "403 Forbidden", "", "", HTTP, DROP, "token"},
    {"404", "404 Not Found", "", "", HTTP, DROP, "path of the URL"},
    {"407", "407 Proxy", "", "", HTTP, DROP, "proxy"},
    {"408", "408 Timeout", "", "", HTTP, LATER, "answered 408"},
    {"409", "409 Conflict", "", "", HTTP, DROP, "answered 409"},
    {"413", "413 Too Large", "", "", HTTP, SMALLER, "too large"},
    {"415", "415 Type", "", "", HTTP, DROP, "kind and url"},
    {"422", "422 Unprocessable", "", "bad label", HTTP, DROP, "bad label"},
    {"422 rate", "422 Unprocessable", "",
     "{\"code\":\"resource_exhausted\",\"message\":\"push rate limit exceeded\"}", PYROSCOPE, LATER,
     "push rate limit"},
    {"422 Rate Limit", "422 Unprocessable", "", "Rate Limit reached", HTTP, LATER, "fewer"},
    {"429", "429 Slow", "", "", HTTP, LATER, "fewer requests"},
    {"500", "500 Oops", "", "disk\nfull", HTTP, SUSPECT, "answered 500: disk full"},
    {"501", "501 No", "", "", HTTP, SUSPECT, "answered 501"},
    {"502", "502 Gateway", "", "", HTTP, LATER, "answered 502"},
    {"503", "503 Busy", "", "", HTTP, LATER, "answered 503"},
    {"504", "504 Gateway", "", "", HTTP, LATER, "answered 504"},
    {"599", "599 Strange", "", "", HTTP, SUSPECT, "answered 599"},
    {"otlp 400", "400 Bad", "", "", OTLP, DROP, "answered 400"},
    {"otlp 408", "408 Timeout", "", "", OTLP, DROP, "answered 408"},
    {"otlp 429", "429 Slow", "", "", OTLP, LATER, "answered 429"},
    {"otlp 500", "500 Oops", "", "", OTLP, DROP, "answered 500"},
    {"otlp 502", "502 Gateway", "", "", OTLP, LATER, "answered 502"},
    {"otlp 503", "503 Busy", "", "", OTLP, LATER, "answered 503"},
    {"otlp 505", "505 Version", "", "", OTLP, DROP, "answered 505"},
    {"otlp words", "400 Bad", "", "\x08\x03\x12\x0bno such day", OTLP, DROP, "no such day"},
    {"otlp partial", "200 OK", "", "\x0a\x0a\x08\x02\x12\x06reject", OTLP, DROP,
     "2 profiles rejected: reject"},
};

static int send_once(struct receiver *r, enum clp_upload_kind kind, uint64_t timeout_ns,
                     struct clp_upload_result *result)
{
    char url[64];
    struct clp_intake *in = NULL;
    struct clp_upload_header h = header_of(0);
    assert_int_equal(receiver_start(r), 0);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/", r->port);
    struct clp_upload u = {.kind = kind, .url = url, .timeout_ns = timeout_ns};
    assert_int_equal(clp_intake_open(&u, &in, NULL), 0);
    int sent = clp_intake_send(in, &h, payload.data, payload.len, result);
    clp_intake_close(in);
    receiver_stop(r);
    return sent;
}

static void each_reply_has_its_outcome(void **state)
{
    (void)state;
    for (size_t i = 0; i < CLP_ARRAY_LEN(cases); i++) {
        const struct reply_case *c = &cases[i];
        static struct receiver r;
        char reply[1024];
        struct clp_upload_result result;
        memset(&r, 0, sizeof(r));
        (void)snprintf(reply, sizeof(reply), "HTTP/1.1 %s\r\n%sContent-Length: %zu\r\n\r\n%s",
                       c->status, c->headers, strlen(c->body), c->body);
        r.reply = reply;
        int sent = send_once(&r, c->kind, 0, &result);
        print_message("%s: %s\n", c->name, result.text);
        assert_int_equal(sent, c->outcome == DONE ? 0 : -EREMOTEIO);
        assert_int_equal(result.outcome, c->outcome);
        assert_int_equal(result.http_status,
                         strcmp(c->name, "otlp partial") == 0 ? 400 : atoi(c->status));
        assert_int_equal(result.retry_after_ns, 0);
        assert_non_null(strstr(result.text, c->word));
        assert_int_equal(r.requests, 1);
    }
}

static void retry_after_has_two_forms(void **state)
{
    (void)state;
    static struct receiver r;
    struct clp_upload_result result;
    char reply[256], date[64];
    time_t soon = time(NULL) + 120;
    struct tm t;
    (void)strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&soon, &t));
    const char *const values[] = {"17", date, "99999999", "Thu, 01 Jan 1970 00:00:10 GMT", "soon"};
    const uint64_t low_s[] = {17, 100, 3600, 0, 0}, high_s[] = {17, 120, 3600, 0, 0};
    for (size_t i = 0; i < CLP_ARRAY_LEN(values); i++) {
        memset(&r, 0, sizeof(r));
        (void)snprintf(reply, sizeof(reply),
                       "HTTP/1.1 429 Slow\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n",
                       values[i]);
        r.reply = reply;
        assert_int_equal(send_once(&r, HTTP, 0, &result), -EREMOTEIO);
        assert_int_equal(result.outcome, LATER);
        assert_in_range(result.retry_after_ns / CLP_NSEC_PER_SEC, low_s[i], high_s[i]);
    }
}

static void a_chunked_reply_counts(void **state)
{
    (void)state;
    static struct receiver r = {
        .reply = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"};
    static struct receiver bad = {.reply = "HTTP/1.1 400 No\r\nTransfer-Encoding: chunked\r\n\r\n"
                                           "7\r\nbecause\r\n0\r\n\r\n"};
    struct clp_upload_result result;
    assert_int_equal(send_once(&r, HTTP, 0, &result), 0);
    assert_int_equal(send_once(&bad, HTTP, 0, &result), -EREMOTEIO);
    assert_non_null(strstr(result.text, "because"));
}

/* A reply of 10 MB is cut off, and its status is what counts. */
static void a_huge_reply_is_cut_off(void **state)
{
    (void)state;
    enum { BYTES = 10 << 20 };
    static char reply[BYTES + 100];
    static struct receiver r = {.reply = reply}, busy = {.reply = reply};
    struct clp_upload_result result;
    size_t head = (size_t)sprintf(reply, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", BYTES);
    memset(reply + head, 'x', BYTES);
    r.reply_len = head + BYTES;
    assert_int_equal(send_once(&r, HTTP, 0, &result), 0);
    memcpy(reply, "HTTP/1.1 503 OK", 15);
    busy.reply_len = r.reply_len;
    assert_int_equal(send_once(&busy, HTTP, 0, &result), -EREMOTEIO);
    assert_int_equal(result.outcome, LATER);
    assert_true(strlen(result.text) < CLP_UPLOAD_TEXT_BYTES);
}

static void silence_and_cut_replies_may_pass(void **state)
{
    (void)state;
    static struct receiver silent = {.reply = NULL};
    static struct receiver cut = {.reply = "HTTP/1.1 2", .ignore_body = true};
    static struct receiver mid_body = {.reply = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
                                       .ignore_body = true};
    struct clp_upload_result result;
    assert_int_equal(send_once(&silent, HTTP, 300 * CLP_NSEC_PER_MSEC, &result), -EREMOTEIO);
    assert_int_equal(result.outcome, LATER);
    assert_int_equal(result.http_status, 0);
    assert_int_equal(send_once(&cut, HTTP, 0, &result), -EREMOTEIO);
    assert_int_equal(result.outcome, LATER);
    /* The intake has said that it has it. */
    assert_int_equal(send_once(&mid_body, HTTP, 0, &result), 0);
}

static void grpc_status_is_the_answer(void **state)
{
    (void)state;
    static const struct {
        const char *reply;
        size_t len;
        enum clp_outcome outcome;
        const char *word;
    } replies[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n"
         "\0\0\0\0\0"
         "\x80\0\0\0\x0fgrpc-status:0\r\n",
         64, DONE, "http://"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n\x80\0\0\0\x10grpc-status:14\r\n", 60, LATER,
         "answered 503"},
        {"HTTP/1.1 200 OK\r\ngrpc-status: 8\r\ngrpc-message: slow down\r\nContent-Length: "
         "0\r\n\r\n",
         0, LATER, "slow down"},
        {"HTTP/1.1 200 OK\r\ngrpc-status: 3\r\ngrpc-message: bad name\r\nContent-Length: 0\r\n\r\n",
         0, DROP, "bad name"},
        {"HTTP/1.1 200 OK\r\ngrpc-status: 3\r\ngrpc-message: not%20%C3%BC%\r\nContent-Length: "
         "0\r\n\r\n",
         0, DROP, "not \xc3\xbc%"},
        {"HTTP/1.1 200 OK\r\ngrpc-status: fine\r\nContent-Length: 0\r\n\r\n", 0, DROP,
         "is it Parca"},
        {"HTTP/1.1 200 OK\r\ngrpc-status: 16\r\nContent-Length: 0\r\n\r\n", 0, DROP, "token"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 0, DROP, "is it Parca"},
        {"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", 0, DROP, "path of the URL"},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(replies); i++) {
        static struct receiver r;
        struct clp_upload_result result;
        memset(&r, 0, sizeof(r));
        r.reply = replies[i].reply;
        r.reply_len = replies[i].len;
        (void)send_once(&r, CLP_UPLOAD_PARCA, 3 * CLP_NSEC_PER_SEC, &result);
        print_message("%zu: %s\n", i, result.text);
        assert_int_equal(result.outcome, replies[i].outcome);
        assert_non_null(strstr(result.text, replies[i].word));
    }
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
    clp_encoded_done(&payload);
    clp_uploader_teardown();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_reply_has_its_outcome),
        cmocka_unit_test(retry_after_has_two_forms),
        cmocka_unit_test(a_chunked_reply_counts),
        cmocka_unit_test(a_huge_reply_is_cut_off),
        cmocka_unit_test(silence_and_cut_replies_may_pass),
        cmocka_unit_test(grpc_status_is_the_answer),
    };
    /* A proxy of the machine's environment would stand between us and the receiver. */
    (void)setenv("no_proxy", "*", 1);
    return cmocka_run_group_tests(tests, setup, teardown);
}
