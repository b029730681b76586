/* What one window costs for each kind of upload: from the spool's chunk of 10,000 distinct stacks
 * of 40 frames to the bodies of its requests. CPU, the bytes that go out, samples that were folded.
 */
#include "base/clock.h"
#include "tests/bench/bench-window.h"
#include "uploader/intake.h"

#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 5

static struct clp_encoded make(void)
{
    static const struct clp_value_type types[] = {{"wall", "nanoseconds"}, {"cpu", "nanoseconds"}};
    struct clp_profile *p = bench_window(types, CLP_ARRAY_LEN(types));
    struct clp_encoded e = {.data = NULL};
    if (clp_profile_encode(p, NULL, &e) < 0)
        exit(1);
    clp_profile_free(p);
    return e;
}

static int measure(enum clp_upload_kind kind, const struct clp_chunk *chunk)
{
    struct clp_upload u = {.kind = kind, .url = "http://127.0.0.1:1/", .path = "/nowhere"};
    struct clp_upload_result result = {.http_status = 0};
    struct clp_requests requests = {.count = 0};
    struct clp_intake *in = NULL;
    double best = 1e9;
    size_t bytes = 0, folded = 0;
    if (clp_intake_open(&u, &in, NULL) < 0)
        return -1;
    for (int i = 0; i < ROUNDS; i++) {
        double start = bench_cpu_ms();
        if (clp_intake_build(in, chunk, &requests, &result) < 0) {
            printf("%s\n", result.text);
            return -1;
        }
        double took = bench_cpu_ms() - start;
        best = took < best ? took : best;
        bytes = folded = 0;
        for (size_t k = 0; k < requests.count; k++) {
            bytes += requests.items[k].len;
            folded += requests.items[k].folded;
        }
        clp_requests_done(&requests);
    }
    printf("%-10s %6.1f ms of CPU, %7zu bytes, %zu samples folded\n", clp_upload_kind_name(kind),
           best, bytes, folded);
    clp_intake_close(in);
    return 0;
}

int main(void)
{
    struct clp_encoded e = make();
    struct clp_upload_header h = {.service = "shop",
                                  .runtime_id = "6f1e6b0a-0000-4000-8000-0123456789ab",
                                  .pid = 1,
                                  .start_unix_ns = clp_clock_realtime_ns(),
                                  .duration_ns = 60 * CLP_NSEC_PER_SEC};
    struct clp_chunk chunk;
    uint8_t *data = NULL;
    size_t len;
    int r = clp_chunk_write(&h, e.data, e.len, &data, &len);
    if (r == 0)
        r = clp_chunk_read(data, len, &chunk, NULL);
    for (int kind = 0; kind < CLP_UPLOAD_KINDS && r == 0; kind++)
        r = measure((enum clp_upload_kind)kind, &chunk);
    if (r == 0)
        clp_chunk_done(&chunk);
    free(data);
    clp_encoded_done(&e);
    return r == 0 ? 0 : 1;
}
