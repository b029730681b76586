/* The whole way: submit, spool, several intakes, failures, restarts. */
#include "tests/unit/clp-cmocka.h"

#include "tests/unit/receiver.h"
#include "tests/unit/upload-fixture.h"
#include "uploader/delivery.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_NS (15 * CLP_NSEC_PER_SEC)

static char root[64];
static char said[65536];
static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;

static void remember(void *context, enum clp_log_level level, const char *text)
{
    (void)context;
    (void)level;
    pthread_mutex_lock(&said_lock);
    size_t at = strlen(said);
    (void)snprintf(said + at, sizeof(said) - at, "%s\n", text);
    pthread_mutex_unlock(&said_lock);
}

static int enter(void **state)
{
    (void)state;
    said[0] = '\0';
    strcpy(root, "/tmp/clp-test-delivery-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int files_of(const char *dir, const char *ending, bool remove)
{
    char path[1024];
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t len = strlen(e->d_name), end = strlen(ending);
        if (e->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        if (remove && unlink(path) < 0) {
            (void)files_of(path, "", true);
            (void)rmdir(path);
        }
        n += len >= end && strcmp(e->d_name + len - end, ending) == 0;
    }
    if (d)
        (void)closedir(d);
    return n;
}

static int leave(void **state)
{
    (void)state;
    (void)files_of(root, "", true);
    return rmdir(root);
}

static char spool_dir[80], out_dir[80];

static struct clp_delivery *start(const struct clp_upload *uploads, size_t count)
{
    char why[512] = "";
    struct clp_delivery *d = NULL;
    (void)snprintf(spool_dir, sizeof(spool_dir), "%s/spool", root);
    (void)snprintf(out_dir, sizeof(out_dir), "%s/out", root);
    struct clp_delivery_config c = {.uploads = uploads,
                                    .upload_count = count,
                                    .spool_dir = spool_dir,
                                    .spool_bytes_max = 1 << 20,
                                    .spool_age_max_ns = 3600 * CLP_NSEC_PER_SEC,
                                    .spool_files_max = 1000,
                                    .memory_bytes_max = 1 << 20,
                                    .retry_first_ns = 20 * CLP_NSEC_PER_MSEC,
                                    .retry_longest_ns = 100 * CLP_NSEC_PER_MSEC,
                                    .say = remember};
    assert_int_equal(clp_delivery_start(&c, &d, why, sizeof(why)), 0);
    return d;
}

static struct clp_upload http_to(const struct receiver *r)
{
    static char urls[4][64];
    static int next;
    char *url = urls[next++ % 4];
    (void)snprintf(url, 64, "http://127.0.0.1:%u/", r->port);
    return (struct clp_upload){
        .kind = CLP_UPLOAD_HTTP, .url = url, .timeout_ns = 3 * CLP_NSEC_PER_SEC};
}

static void submit(struct clp_delivery *d, uint64_t seq, bool all)
{
    struct clp_encoded e = all ? full_profile() : small_profile();
    struct clp_upload_header h = header_of(seq);
    assert_int_equal(clp_delivery_submit(d, &h, e.data, e.len, NULL, NULL), 0);
    clp_encoded_done(&e);
}

static void wait_empty(struct clp_delivery *d)
{
    uint64_t left = clp_delivery_wait(d, clp_clock_monotonic_ns() + WAIT_NS);
    if (left)
        print_message("%s", said);
    assert_int_equal(left, 0);
}

static struct clp_delivery_stats stats_of(struct clp_delivery *d, size_t at)
{
    struct clp_delivery_stats s;
    clp_delivery_stats(d, at, &s);
    return s;
}

static void stop_soon(struct clp_delivery *d)
{
    clp_delivery_stop(d, clp_clock_monotonic_ns() + CLP_NSEC_PER_SEC, NULL);
}

static void reaches_two_intakes(void **state)
{
    (void)state;
    static struct receiver r = {.reply = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"};
    assert_int_equal(receiver_start(&r), 0);
    (void)snprintf(out_dir, sizeof(out_dir), "%s/out", root);
    struct clp_upload uploads[] = {http_to(&r), {.kind = CLP_UPLOAD_DIRECTORY, .path = out_dir}};
    struct clp_delivery *d = start(uploads, 2);
    for (uint64_t i = 0; i < 5; i++)
        submit(d, i, true);
    wait_empty(d);
    assert_int_equal(stats_of(d, 0).sent, 5);
    assert_int_equal(stats_of(d, 1).sent, 5);
    assert_int_equal(stats_of(d, 0).retried, 0);
    stop_soon(d);
    receiver_stop(&r);
    assert_int_equal(r.requests, 15); /* cpu, exceptions, allocations */
    assert_int_equal(r.connections, 1);
    assert_int_equal(files_of(out_dir, ".pb.gz", false), 15);
    assert_int_equal(files_of(spool_dir, ".chunk", false), 0);
    assert_int_equal(files_of(spool_dir, ".sent", false), 0);
}

/* The dead one keeps its backlog over a restart; the other gets each profile once. */
static void a_dead_intake_delays_nobody_and_gets_all_later(void **state)
{
    (void)state;
    static struct receiver good = {.reply = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"};
    static struct receiver bad = {.reply = "HTTP/1.1 503 Down\r\nContent-Length: 0\r\n\r\n"};
    assert_int_equal(receiver_start(&good), 0);
    assert_int_equal(receiver_start(&bad), 0);
    struct clp_upload uploads[] = {http_to(&good), http_to(&bad)};
    struct clp_delivery *d = start(uploads, 2);
    for (uint64_t i = 0; i < 4; i++)
        submit(d, i, true);
    uint64_t until = clp_clock_monotonic_ns() + WAIT_NS;
    while (stats_of(d, 0).sent < 4 && clp_clock_monotonic_ns() < until)
        (void)usleep(10000);
    assert_int_equal(stats_of(d, 0).sent, 4);
    assert_int_equal(stats_of(d, 1).backlog, 4);
    assert_true(stats_of(d, 1).failing);
    assert_non_null(strstr(stats_of(d, 1).error, "answered 503"));
    stop_soon(d);
    assert_int_equal(files_of(spool_dir, ".chunk", false), 4);
    bad.reply = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    unsigned before = good.requests, refused = bad.requests;
    d = start(uploads, 2);
    wait_empty(d);
    assert_int_equal(stats_of(d, 1).sent, 4);
    assert_int_equal(stats_of(d, 0).sent, 0);
    stop_soon(d);
    receiver_stop(&good);
    receiver_stop(&bad);
    assert_int_equal(good.requests, before);
    assert_int_equal(bad.requests, refused + 12);
    assert_non_null(strstr(said, "wait in"));
}

static int chunks_when_stored;

static void on_stored(void *context)
{
    assert_non_null(context);
    (void)usleep(50000); /* time enough for a request, were it allowed */
    chunks_when_stored = files_of(spool_dir, ".chunk", false);
}

/* What is noted with a profile is noted while the spool has it, however fast the intake is. */
static void nothing_is_sent_before_it_is_noted(void **state)
{
    (void)state;
    static struct receiver r = {.reply = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"};
    assert_int_equal(receiver_start(&r), 0);
    struct clp_upload u = http_to(&r);
    struct clp_delivery *d = start(&u, 1);
    struct clp_encoded e = small_profile();
    struct clp_upload_header h = header_of(6);
    chunks_when_stored = 0;
    assert_int_equal(clp_delivery_submit(d, &h, e.data, e.len, on_stored, &d), 0);
    assert_int_equal(chunks_when_stored, 1);
    wait_empty(d);
    stop_soon(d);
    clp_encoded_done(&e);
    receiver_stop(&r);
}

static void a_refused_profile_is_dropped_once(void **state)
{
    (void)state;
    static struct receiver r = {.reply = "HTTP/1.1 400 Bad\r\nContent-Length: 7\r\n\r\nbecause"};
    assert_int_equal(receiver_start(&r), 0);
    struct clp_upload u = http_to(&r);
    struct clp_delivery *d = start(&u, 1);
    submit(d, 0, false);
    wait_empty(d);
    assert_int_equal(stats_of(d, 0).dropped[CLP_DROP_REFUSED], 1);
    stop_soon(d);
    receiver_stop(&r);
    assert_int_equal(r.requests, 1);
    assert_non_null(strstr(said, "because"));
}

#define TAKEN "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

static bool is_for(const struct receiver *r, const char *name, const char *value)
{
    const char *found = receiver_header(r, name);
    return found && strcmp(found, value) == 0;
}

static const char *no_exceptions(const struct receiver *r)
{
    return is_for(r, "Clrpulse-Kind", "exceptions")
               ? "HTTP/1.1 422 No\r\nContent-Length: 8\r\n\r\nbad type"
               : TAKEN;
}

/* What is wrong with one of its kinds costs a profile none of the others, and each goes once. */
static void one_bad_kind_costs_no_other(void **state)
{
    (void)state;
    static struct receiver r = {.choose = no_exceptions};
    assert_int_equal(receiver_start(&r), 0);
    struct clp_upload u = http_to(&r);
    struct clp_delivery *d = start(&u, 1);
    for (uint64_t i = 0; i < 4; i++)
        submit(d, i, true);
    wait_empty(d);
    assert_int_equal(stats_of(d, 0).dropped[CLP_DROP_REFUSED], 4);
    assert_int_equal(stats_of(d, 0).sent, 0);
    stop_soon(d);
    receiver_stop(&r);
    assert_int_equal(r.requests, 12);
    assert_non_null(strstr(said, "the exceptions profile of process 4242 is dropped"));
    assert_int_equal(files_of(spool_dir, ".chunk", false), 0);
}

static unsigned poison_tries, taken_count;
static uint64_t taken[32];

static const char *chokes_on_three(const struct receiver *r)
{
    uint64_t seq = strtoull(receiver_header(r, "Clrpulse-Seq"), NULL, 10);
    if (seq == 3) {
        poison_tries++;
        return "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n";
    }
    if (taken_count < CLP_ARRAY_LEN(taken))
        taken[taken_count++] = seq;
    return TAKEN;
}

/* The one that the intake chokes on goes after few tries; the others arrive, in their order. */
static void a_poison_payload_among_others(void **state)
{
    (void)state;
    static struct receiver r = {.choose = chokes_on_three};
    poison_tries = taken_count = 0;
    assert_int_equal(receiver_start(&r), 0);
    struct clp_upload u = http_to(&r);
    struct clp_delivery *d = start(&u, 1);
    for (uint64_t i = 0; i < 10; i++)
        submit(d, i, false);
    wait_empty(d);
    assert_int_equal(stats_of(d, 0).sent, 9);
    assert_int_equal(stats_of(d, 0).dropped[CLP_DROP_POISON], 1);
    stop_soon(d);
    receiver_stop(&r);
    assert_int_equal(poison_tries, 6); /* three, and three with another one taken before each */
    assert_int_equal(taken_count, 9);
    for (uint64_t i = 0; i < 9; i++)
        assert_int_equal(taken[i], i < 3 ? i : i + 1);
}

static const char *only_for_a(const struct receiver *r)
{
    return is_for(r, "Authorization", "Bearer a")
               ? TAKEN
               : "HTTP/1.1 503 Down\r\nContent-Length: 0\r\n\r\n";
}

/* Two accounts at one place: what one of them has is not sent to it again after a restart. */
static void two_accounts_have_their_own_progress(void **state)
{
    (void)state;
    static struct receiver r = {.choose = only_for_a};
    assert_int_equal(receiver_start(&r), 0);
    struct clp_upload uploads[] = {http_to(&r), {.kind = CLP_UPLOAD_HTTP}};
    uploads[1] = uploads[0];
    uploads[0].token = "b";
    uploads[1].token = "a";
    struct clp_delivery *d = start(uploads, 2);
    submit(d, 0, false);
    uint64_t until = clp_clock_monotonic_ns() + WAIT_NS;
    while (stats_of(d, 1).sent < 1 && clp_clock_monotonic_ns() < until)
        (void)usleep(1000);
    assert_int_equal(stats_of(d, 1).sent, 1);
    stop_soon(d);
    d = start(uploads, 2);
    assert_int_equal(stats_of(d, 0).backlog, 1);
    assert_int_equal(stats_of(d, 1).backlog, 0);
    stop_soon(d);
    receiver_stop(&r);
    assert_null(strstr(said, "are the same"));
}

/* Each has its own progress all the same, but nobody can want that. */
static void one_account_twice_is_told(void **state)
{
    (void)state;
    static struct receiver r = {.reply = TAKEN};
    assert_int_equal(receiver_start(&r), 0);
    struct clp_upload uploads[] = {http_to(&r), {.kind = CLP_UPLOAD_HTTP}};
    uploads[1] = uploads[0];
    struct clp_delivery *d = start(uploads, 2);
    submit(d, 0, false);
    wait_empty(d);
    stop_soon(d);
    receiver_stop(&r);
    assert_int_equal(r.requests, 2);
    assert_non_null(strstr(said, "uploads 1 and 2 are the same: http://127.0.0.1"));
}

/* 500 for ever: a bounded number of tries, and only because of nothing else. */
static void a_poison_payload_ends(void **state)
{
    (void)state;
    static struct receiver r = {.reply = "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"};
    assert_int_equal(receiver_start(&r), 0);
    struct clp_upload u = http_to(&r);
    struct clp_delivery *d = start(&u, 1);
    submit(d, 0, false);
    wait_empty(d);
    assert_int_equal(stats_of(d, 0).dropped[CLP_DROP_POISON], 1);
    stop_soon(d);
    receiver_stop(&r);
    assert_int_equal(r.requests, 20);
}

/* "Too large" is learned: the profile goes again, smaller, and the next one at once. */
static void too_large_is_learned(void **state)
{
    (void)state;
    static struct receiver r = {.reply = "HTTP/1.1 413 Big\r\nContent-Length: 0\r\n\r\n"};
    static const struct clp_value_type cpu = {"cpu", "nanoseconds"};
    assert_int_equal(receiver_start(&r), 0);
    struct clp_upload u = http_to(&r);
    struct clp_delivery *d = start(&u, 1);
    struct clp_profile *p = window_profile(&cpu, 1);
    struct clp_encoded e;
    for (int i = 0; i < 20000; i++) {
        char name[40];
        (void)snprintf(name, sizeof(name), "Shop.Some.Function.Number%d", i);
        clp_profile_add(p, frames_of(p, name), 0, (double[]){1 + i});
    }
    assert_int_equal(clp_profile_encode(p, NULL, &e), 0);
    clp_profile_free(p);
    struct clp_upload_header h = header_of(0);
    assert_int_equal(clp_delivery_submit(d, &h, e.data, e.len, NULL, NULL), 0);
    clp_encoded_done(&e);
    uint64_t until = clp_clock_monotonic_ns() + WAIT_NS;
    while (stats_of(d, 0).retried < 2 && clp_clock_monotonic_ns() < until)
        (void)usleep(1000);
    r.reply = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    wait_empty(d);
    assert_int_equal(stats_of(d, 0).sent, 1);
    assert_true(stats_of(d, 0).folded > 1000);
    stop_soon(d);
    receiver_stop(&r);
    assert_non_null(strstr(said, "they are folded to"));
    assert_non_null(strstr(said, "together in [other]"));
}

static void a_damaged_chunk_is_set_aside(void **state)
{
    (void)state;
    static struct receiver r = {.reply = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"};
    char path[512];
    assert_int_equal(receiver_start(&r), 0);
    struct clp_upload u = http_to(&r);
    struct clp_delivery *d = start(&u, 1);
    stop_soon(d);
    (void)snprintf(path, sizeof(path), "%s/%020llu-a-1.chunk", spool_dir,
                   (unsigned long long)clp_clock_realtime_ns());
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fputs("CLPCHUNK and then nothing", f);
    (void)fclose(f);
    d = start(&u, 1);
    submit(d, 0, false);
    wait_empty(d);
    assert_int_equal(stats_of(d, 0).sent, 1);
    stop_soon(d);
    receiver_stop(&r);
    assert_int_equal(r.requests, 1);
    assert_int_equal(files_of(spool_dir, ".bad", false), 1);
    assert_non_null(strstr(said, "cannot be read"));
}

static void a_stop_does_not_wait_for_the_silent(void **state)
{
    (void)state;
    static struct receiver r = {.reply = NULL};
    uint64_t lost = 99;
    assert_int_equal(receiver_start(&r), 0);
    struct clp_upload u = http_to(&r);
    u.timeout_ns = 30 * CLP_NSEC_PER_SEC;
    struct clp_delivery *d = start(&u, 1);
    submit(d, 0, false);
    (void)usleep(100000);
    uint64_t before = clp_clock_monotonic_ns();
    clp_delivery_stop(d, before + 300 * CLP_NSEC_PER_MSEC, &lost);
    uint64_t took = clp_clock_monotonic_ns() - before;
    assert_true(took < 2 * CLP_NSEC_PER_SEC);
    assert_int_equal(lost, 0);
    receiver_stop(&r);
    assert_int_equal(files_of(spool_dir, ".chunk", false), 1);
}

static void without_a_directory_memory_serves(void **state)
{
    (void)state;
    static struct receiver r = {.reply = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"};
    char why[256];
    struct clp_delivery *d = NULL;
    assert_int_equal(receiver_start(&r), 0);
    struct clp_upload u = http_to(&r);
    struct clp_delivery_config c = {.uploads = &u,
                                    .upload_count = 1,
                                    .spool_dir = "/proc/no/such/place",
                                    .spool_bytes_max = 1 << 20,
                                    .spool_age_max_ns = 3600 * CLP_NSEC_PER_SEC,
                                    .spool_files_max = 10,
                                    .memory_bytes_max = 1 << 20,
                                    .say = remember};
    assert_int_equal(clp_delivery_start(&c, &d, why, sizeof(why)), 0);
    assert_non_null(strstr(said, "wait in memory"));
    submit(d, 0, true);
    wait_empty(d);
    assert_int_equal(stats_of(d, 0).sent, 1);
    stop_soon(d);
    receiver_stop(&r);
    assert_int_equal(r.requests, 3);
}

static int setup(void **state)
{
    (void)state;
    return clp_uploader_setup();
}

static int teardown(void **state)
{
    (void)state;
    clp_uploader_teardown();
    return 0;
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, enter, leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIR(reaches_two_intakes),
        IN_DIR(a_dead_intake_delays_nobody_and_gets_all_later),
        IN_DIR(nothing_is_sent_before_it_is_noted),
        IN_DIR(a_refused_profile_is_dropped_once),
        IN_DIR(one_bad_kind_costs_no_other),
        IN_DIR(a_poison_payload_ends),
        IN_DIR(a_poison_payload_among_others),
        IN_DIR(two_accounts_have_their_own_progress),
        IN_DIR(one_account_twice_is_told),
        IN_DIR(too_large_is_learned),
        IN_DIR(a_damaged_chunk_is_set_aside),
        IN_DIR(a_stop_does_not_wait_for_the_silent),
        IN_DIR(without_a_directory_memory_serves),
    };
    (void)setenv("no_proxy", "*", 1);
    return cmocka_run_group_tests(tests, setup, teardown);
}
