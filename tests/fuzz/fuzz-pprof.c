/* Any bytes through the decoder; what it accepts must encode to something that decodes to the same
 * bytes again, with the same totals. */
#include "pprof/decode.h"
#include "pprof/encode.h"
#include "pprof/top.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

static struct clp_encoded encode(const struct clp_profile *p)
{
    const struct clp_encode_options plain = {.plain = true};
    struct clp_encoded e;
    require(clp_profile_encode(p, &plain, &e) == 0);
    return e;
}

static void check(const struct clp_profile *first)
{
    struct clp_profile *second = NULL;
    struct clp_top top;
    struct clp_encoded a = encode(first);
    require(clp_profile_decode(a.data, a.len, NULL, &second, NULL) == 0);
    require(clp_profile_counts(second)->samples_folded == 0);
    struct clp_encoded b = encode(second);
    require(a.len == b.len && memcmp(a.data, b.data, a.len) == 0);
    for (size_t i = 0; i < clp_profile_value_count(first); i++) {
        require(clp_profile_total(first, i) == clp_profile_total(second, i));
        require(clp_top_make(second, i, &top) == 0);
        require((double)top.total == clp_profile_total(first, i));
        clp_top_done(&top);
    }
    clp_encoded_done(&a);
    clp_encoded_done(&b);
    clp_profile_free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Small tables, so that small inputs reach their ceilings as well; the first byte chooses. */
    const struct clp_profile_limits small = {.strings = 8,
                                             .mappings = 2,
                                             .functions = 3,
                                             .locations = 4,
                                             .stacks = 4,
                                             .label_sets = 3,
                                             .samples = 4};
    struct clp_profile *p = NULL;
    if (size == 0)
        return 0;
    if (clp_profile_decode(data + 1, size - 1, data[0] & 1 ? &small : NULL, &p, NULL) == 0)
        check(p);
    clp_profile_free(p);
    return 0;
}
