/* A stream that anybody may have written, through the whole engine to a profile and its bytes. */
#include "agent/eventpipe_build.h"
#include "pprof/encode.h"

#include <stdlib.h>
#include <string.h>

static void take(void *context, const struct clp_nettrace_event *e)
{
    clp_epb_event(context, e);
}

static void finish(struct clp_epb *b, const struct clp_nettrace *r)
{
    struct clp_epb_window w = {
        .duration_ns = 1, .end_ticks = 1u << 20, .lost = clp_nettrace_counts(r)->lost};
    struct clp_encode_options plain = {.plain = true};
    struct clp_profile *p;
    struct clp_encoded encoded;
    if (clp_epb_finish(b, &w, &p) < 0)
        return;
    if (clp_profile_encode(p, &plain, &encoded) == 0)
        clp_encoded_done(&encoded);
    clp_profile_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct clp_epb_config build = {.cpu = true};
    struct clp_epb *b;
    struct clp_nettrace *r;
    if (size < 4 || clp_epb_new(&build, &b) < 0)
        return 0;
    struct clp_nettrace_config config = {.event = take, .context = b};
    if (clp_nettrace_new(&config, &r) == 0) {
        clp_epb_burst(b, data[1], data[2], data[3]);
        clp_epb_clock(b, data[1], data[2], data[3], data[1]);
        (void)!clp_nettrace_feed(r, data + 1, size - 1);
        clp_nettrace_finish(r);
        clp_epb_settle(b, data[3], data[1]);
        clp_epb_lost_code(b);
        finish(b, r);
        finish(b, r);
        clp_nettrace_free(r);
    }
    clp_epb_free(b);
    return 0;
}
