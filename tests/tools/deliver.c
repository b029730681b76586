/* Stands in for an agent: submits profiles that are known, for the tests of delivery.
 *
 *     deliver SPOOL FIRST COUNT PERIOD_MS WAIT_S KIND KEY=VALUE... [+ KIND KEY=VALUE...]...
 *
 * Prints "put SEQ" when a profile is in the spool, what delivery says, and at the end a line of
 * JSON for each intake. KEY: a text of struct clp_upload, or header, timeout_ms,
 * connect_timeout_ms, size_max. SIGTERM ends it early. With COUNT "big:N" one profile of N stacks
 * is sent.
 *
 * CLP_DELIVER_RETRY_MS: "FIRST,LONGEST" pause, 0 for delivery's own; CLP_DELIVER_AGE_S: of the
 * spool. */
#include "base/clock.h"
#include "pprof/encode.h"
#include "uploader/delivery.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define RUNTIME_ID "6f1e6b0a-0000-4000-8000-0123456789ab"
#define HEADERS_MAX 8

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

static void say(void *context, enum clp_log_level level, const char *text)
{
    (void)context;
    fprintf(stderr, "%d %s\n", (int)level, text);
}

static void die(const char *text)
{
    fprintf(stderr, "deliver: %s\n", text);
    exit(2);
}

/* ---- uploads --------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset;
} texts[] = {
#define TEXT(field)                                                                                \
    {                                                                                              \
#field, offsetof(struct clp_upload, field)                                                 \
    }
    TEXT(url),     TEXT(path),     TEXT(user),      TEXT(password), TEXT(token),
    TEXT(tenant),  TEXT(api_key),  TEXT(site),      TEXT(format),   TEXT(otlp_version),
    TEXT(ca_file), TEXT(key_file), TEXT(cert_file), TEXT(proxy),    TEXT(no_proxy),
};

static void set_key(struct clp_upload *u, char *pair)
{
    char *value = strchr(pair, '=');
    if (!value)
        die("KEY=VALUE is wanted");
    *value++ = '\0';
    for (size_t i = 0; i < CLP_ARRAY_LEN(texts); i++)
        if (strcmp(texts[i].name, pair) == 0) {
            *(const char **)((char *)u + texts[i].offset) = value;
            return;
        }
    if (strcmp(pair, "timeout_ms") == 0)
        u->timeout_ns = strtoull(value, NULL, 10) * CLP_NSEC_PER_MSEC;
    else if (strcmp(pair, "connect_timeout_ms") == 0)
        u->connect_timeout_ns = strtoull(value, NULL, 10) * CLP_NSEC_PER_MSEC;
    else if (strcmp(pair, "size_max") == 0)
        u->size_max = strtoull(value, NULL, 10);
    else if (strcmp(pair, "header") == 0 && u->header_count < HEADERS_MAX)
        ((const char **)(uintptr_t)u->headers)[u->header_count++] = value;
    else
        die("no such key");
}

static size_t read_uploads(char **words, struct clp_upload *uploads)
{
    static const char *headers[CLP_DELIVERY_INTAKES_MAX][HEADERS_MAX];
    size_t n = 0;
    while (*words && n < CLP_DELIVERY_INTAKES_MAX) {
        struct clp_upload *u = &uploads[n];
        u->headers = headers[n++];
        if (clp_upload_parse_kind(*words++, &u->kind) < 0)
            die("no such kind");
        while (*words && strcmp(*words, "+") != 0)
            set_key(u, *words++);
        words += *words != NULL;
    }
    return n;
}

/* ---- profiles -------------------------------------------------------------------------------- */

static struct clp_profile *new_profile(uint64_t start_ns)
{
    static const struct clp_value_type types[] = {
        {"wall", "nanoseconds"},     {"exceptions", "count"},       {"alloc_objects", "count"},
        {"alloc_space", "bytes"},    {"lock_contentions", "count"}, {"lock_delay", "nanoseconds"},
        {"inuse_objects", "count"},  {"inuse_space", "bytes"},      {"gc_collections", "count"},
        {"gc_pause", "nanoseconds"}, {"cpu", "nanoseconds"}};
    struct clp_profile_config c = {.sample_types = types,
                                   .sample_type_count = CLP_ARRAY_LEN(types),
                                   .period_type = {"cpu", "nanoseconds"},
                                   .period = 10000000};
    struct clp_profile *p = NULL;
    if (clp_profile_new(&c, &p) < 0)
        die("out of memory");
    clp_profile_set_window(p, start_ns, CLP_NSEC_PER_SEC);
    return p;
}

static uint32_t stack(struct clp_profile *p, const char *leaf)
{
    struct clp_profile_line line = {
        clp_profile_function(p, &(struct clp_profile_function){.name = "qsort"}), 0};
    struct clp_profile_location native = {
        clp_profile_mapping(p, &(struct clp_profile_mapping){.start = 0x7f0000000000,
                                                             .limit = 0x7f0000200000,
                                                             .filename = "/lib/libc.so.6",
                                                             .build_id = "0123456789abcdef"}),
        0x7f0000012345, &line, 1};
    const uint32_t frames[] = {clp_profile_frame(p, leaf), clp_profile_location(p, &native),
                               clp_profile_frame(p, "Shop.Main")};
    return clp_profile_stack(p, frames, 3);
}

static void fill_small(struct clp_profile *p, uint64_t seq)
{
    const struct clp_profile_label labels[] = {
        {.key = "thread_id", .num = 17},
        {.key = "thread_name", .str = "w\xc3\xb6rker"},
        {.key = "span_id", .str = "00f067aa0ba902b7"},
        {.key = "trace_id", .str = "4bf92f3577b34da6a3ce929d0e0e4736"},
        {.key = "local_root_span_id", .str = "00f067aa0ba902b7"},
        {.key = "endpoint", .str = "GET /cart"},
        {.key = "exception_type", .str = "System.InvalidOperationException"},
        {.key = "exception_message", .str = "no \"cart\""},
    };
    uint32_t set = clp_profile_labels(p, labels, CLP_ARRAY_LEN(labels));
    clp_profile_add(p, stack(p, "Shop.Cart.Add"), set,
                    (double[]){50, 5, 7, 700, 2, 2000, 0, 0, 0, 0, 3000 + (double)seq});
    clp_profile_add(p, stack(p, "Shop.Cart.Sum"), CLP_PROFILE_NO_LABELS,
                    (double[]){60, 0, 3, 300, 1, 1000, 9, 900, 4, 40, 1000});
    (void)!clp_profile_comment(p, "profile_seq=%llu", (unsigned long long)seq);
    (void)!clp_profile_comment(p, "process_cpu=%llu nanoseconds", (unsigned long long)(4000 + seq));
}

/* Distinct stacks of 40 frames; a million of them are 50 MB of samples. */
static void fill_big(struct clp_profile *p, uint64_t stacks)
{
    uint32_t names[1000], frames[40];
    for (int i = 0; i < 1000; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "Shop.Some.Namespace.Type%d.Method", i);
        names[i] = clp_profile_frame(p, name);
    }
    for (uint32_t i = 0; i < stacks; i++) {
        for (uint32_t k = 0; k < 40; k++)
            frames[k] = names[k == 0 ? i % 1000 : k == 1 ? i / 1000 : (k * 7 + i % 13) % 1000];
        clp_profile_add(p, clp_profile_stack(p, frames, 40), CLP_PROFILE_NO_LABELS,
                        (double[]){0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 + i % 100});
    }
}

static void submit(struct clp_delivery *d, uint64_t seq, uint64_t big)
{
    static const char *const tags[] = {"team:payments", "region:eu", "odd tag:x,y z", "empty:"};
    struct clp_upload_header h = {.service = "shop",
                                  .env = "production",
                                  .version = "1.2.3",
                                  .host = "node-1",
                                  .runtime_id = RUNTIME_ID,
                                  .runtime_version = "10.0.1",
                                  .container_id = "",
                                  .tags = tags,
                                  .tag_count = 4,
                                  .pid = 4242,
                                  .ns_pid = 7,
                                  .seq = seq,
                                  .cgroup_inode = 4711,
                                  .duration_ns = CLP_NSEC_PER_SEC};
    h.endpoints = &(struct clp_upload_number){"GET /cart", 12};
    h.endpoint_count = 1;
    h.start_unix_ns = clp_clock_realtime_ns() - CLP_NSEC_PER_SEC;
    struct clp_profile *p = new_profile(h.start_unix_ns);
    struct clp_encoded e;
    if (big)
        fill_big(p, big);
    else
        fill_small(p, seq);
    if (clp_profile_encode(p, NULL, &e) < 0)
        die("cannot encode");
    clp_profile_free(p);
    if (clp_delivery_submit(d, &h, e.data, e.len, NULL, NULL) == 0) {
        printf("put %llu\n", (unsigned long long)seq);
        fflush(stdout);
    }
    clp_encoded_done(&e);
}

static void report(struct clp_delivery *d)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    for (size_t i = 0; i < clp_delivery_intakes(d); i++) {
        struct clp_delivery_stats s;
        clp_delivery_stats(d, i, &s);
        printf("{\"where\": \"%s\", \"sent\": %llu, \"retried\": %llu, \"backlog\": %llu, "
               "\"folded\": %llu, \"rss_kib\": %ld",
               s.where, (unsigned long long)s.sent, (unsigned long long)s.retried,
               (unsigned long long)s.backlog, (unsigned long long)s.folded, usage.ru_maxrss);
        for (int k = 0; k < CLP_DROPS; k++)
            printf(", \"%s\": %llu", clp_delivery_drop_name((enum clp_delivery_drop)k),
                   (unsigned long long)s.dropped[k]);
        printf("}\n");
    }
}

static void read_environment(struct clp_delivery_config *c)
{
    const char *retry = getenv("CLP_DELIVER_RETRY_MS"), *age = getenv("CLP_DELIVER_AGE_S");
    const char *comma = retry ? strchr(retry, ',') : NULL;
    if (comma) {
        c->retry_first_ns = strtoull(retry, NULL, 10) * CLP_NSEC_PER_MSEC;
        c->retry_longest_ns = strtoull(comma + 1, NULL, 10) * CLP_NSEC_PER_MSEC;
    }
    if (age)
        c->spool_age_max_ns = strtoull(age, NULL, 10) * CLP_NSEC_PER_SEC;
}

int main(int argc, char **argv)
{
    struct clp_upload uploads[CLP_DELIVERY_INTAKES_MAX] = {{.kind = CLP_UPLOAD_HTTP}};
    struct clp_delivery *d = NULL;
    char why[512];
    if (argc < 7)
        die("usage: deliver SPOOL FIRST COUNT PERIOD_MS WAIT_S KIND KEY=VALUE... [+ ...]");
    uint64_t first = strtoull(argv[2], NULL, 10), period_ms = strtoull(argv[4], NULL, 10);
    uint64_t big = strncmp(argv[3], "big:", 4) == 0 ? strtoull(argv[3] + 4, NULL, 10) : 0;
    uint64_t count = big ? 1 : strtoull(argv[3], NULL, 10);
    struct clp_delivery_config c = {.uploads = uploads,
                                    .upload_count = read_uploads(argv + 6, uploads),
                                    .spool_dir = argv[1],
                                    .spool_bytes_max = 256 << 20,
                                    .spool_age_max_ns = 3600 * CLP_NSEC_PER_SEC,
                                    .spool_files_max = 10000,
                                    .memory_bytes_max = 1 << 20,
                                    .retry_first_ns = 50 * CLP_NSEC_PER_MSEC,
                                    .retry_longest_ns = CLP_NSEC_PER_SEC,
                                    .say = say};
    read_environment(&c);
    (void)signal(SIGTERM, on_signal);
    if (clp_uploader_setup() < 0 || clp_delivery_start(&c, &d, why, sizeof(why)) < 0)
        die(why);
    printf("started\n");
    fflush(stdout);
    for (uint64_t i = 0; i < count && !stopped; i++) {
        submit(d, first + i, big);
        (void)usleep((useconds_t)(period_ms * 1000));
    }
    uint64_t until = clp_clock_monotonic_ns() + strtoull(argv[5], NULL, 10) * CLP_NSEC_PER_SEC;
    while (!stopped && clp_clock_monotonic_ns() < until &&
           clp_delivery_wait(d, clp_clock_monotonic_ns() + 50 * CLP_NSEC_PER_MSEC))
        ;
    report(d);
    clp_delivery_stop(d, clp_clock_monotonic_ns() + CLP_NSEC_PER_SEC, NULL);
    clp_uploader_teardown();
    return 0;
}
