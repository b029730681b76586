/* A profile with every sample type, and what it is about, for the tests of uploader/. */
#ifndef CLP_TESTS_UNIT_UPLOAD_FIXTURE_H
#define CLP_TESTS_UNIT_UPLOAD_FIXTURE_H

#include "tests/unit/clp-cmocka.h"

#include "base/clock.h"
#include "pprof/encode.h"
#include "uploader/header.h"

#include <stdio.h>
#include <string.h>

#define FIXTURE_RUNTIME "6f1e6b0a-0000-4000-8000-0123456789ab"

static inline struct clp_upload_header header_of(uint64_t seq)
{
    static const char *const tags[] = {"team:payments", "bad tag:x,y z", "empty:", "region:eu"};
    return (struct clp_upload_header){
        .service = "shop",
        .env = "production",
        .version = "1.2.3",
        .host = "node-1",
        .runtime_id = FIXTURE_RUNTIME,
        .runtime_version = "10.0.1",
        .container_id = "",
        .tags = tags,
        .tag_count = 4,
        .pid = 4242,
        .ns_pid = 7,
        .seq = seq,
        .start_unix_ns = clp_clock_realtime_ns() - 60 * CLP_NSEC_PER_SEC + seq * CLP_NSEC_PER_MSEC,
        .duration_ns = 60 * CLP_NSEC_PER_SEC};
}

static inline struct clp_profile *window_profile(const struct clp_value_type *types, size_t count)
{
    struct clp_profile_config c = {.sample_types = types,
                                   .sample_type_count = count,
                                   .default_sample_type = "cpu",
                                   .period_type = {"cpu", "nanoseconds"},
                                   .period = 10000000};
    struct clp_profile *p = NULL;
    assert_int_equal(clp_profile_new(&c, &p), 0);
    clp_profile_set_window(p, clp_clock_realtime_ns() - 60 * CLP_NSEC_PER_SEC,
                           60 * CLP_NSEC_PER_SEC);
    return p;
}

static inline uint32_t frames_of(struct clp_profile *p, const char *leaf)
{
    const uint32_t frames[] = {clp_profile_frame(p, leaf), clp_profile_frame(p, "Shop.Main")};
    return clp_profile_stack(p, frames, 2);
}

/* cpu 3000 + 1000 ns, 5 exceptions, 7 objects of 700 bytes. */
static inline struct clp_encoded full_profile(void)
{
    static const struct clp_value_type types[] = {{"exceptions", "count"},
                                                  {"alloc_objects", "count"},
                                                  {"alloc_space", "bytes"},
                                                  {"cpu", "nanoseconds"}};
    struct clp_profile *p = window_profile(types, 4);
    struct clp_encoded e;
    const struct clp_profile_label labels[] = {
        {.key = "thread_id", .num = 17},
        {.key = "thread_name", .str = "w\xc3\xb6rker"},
        {.key = "span_id", .str = "00f067aa0ba902b7"},
        {.key = "trace_id", .str = "4bf92f3577b34da6a3ce929d0e0e4736"},
        {.key = "local_root_span_id", .str = "00f067aa0ba902b7"},
        {.key = "endpoint", .str = "GET /cart"},
    };
    const struct clp_profile_label exception = {.key = "exception_type",
                                                .str = "System.InvalidOperationException"};
    uint32_t set = clp_profile_labels(p, labels, 6);
    clp_profile_add(p, frames_of(p, "Shop.Cart.Add"), set, (double[]){0, 0, 0, 3000});
    clp_profile_add(p, frames_of(p, "Shop.Cart.Sum"), 0, (double[]){0, 7, 700, 1000});
    clp_profile_add(p, frames_of(p, "Shop.Pay"), clp_profile_labels(p, &exception, 1),
                    (double[]){5, 0, 0, 0});
    assert_int_equal(clp_profile_comment(p, "process_cpu=4000 nanoseconds"), 0);
    assert_int_equal(clp_profile_encode(p, NULL, &e), 0);
    clp_profile_free(p);
    return e;
}

static inline struct clp_encoded small_profile(void)
{
    static const struct clp_value_type cpu = {"cpu", "nanoseconds"};
    struct clp_profile *p = window_profile(&cpu, 1);
    struct clp_encoded e;
    clp_profile_add(p, frames_of(p, "Shop.Cart.Add"), 0, (double[]){3000});
    assert_int_equal(clp_profile_encode(p, NULL, &e), 0);
    clp_profile_free(p);
    return e;
}

#endif
