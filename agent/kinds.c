#include "agent/kinds.h"

#include <errno.h>

#define VALUES_MAX 2

static const struct {
    const char *values[VALUES_MAX]; /* sample types, the preferred one last */
} kinds[CLP_TYPE_COUNT] = {
    [CLP_TYPE_CPU] = {{"cpu"}},
};

int clp_kind_encode(const struct clp_profile *p, enum clp_profile_type kind,
                    struct clp_encoded *ret)
{
    uint8_t indexes[VALUES_MAX];
    struct clp_encode_options o = {.values = indexes};
    for (size_t i = 0; i < VALUES_MAX && kinds[kind].values[i]; i++) {
        int at = clp_profile_value_index(p, kinds[kind].values[i]);
        if (at >= 0)
            indexes[o.value_count++] = (uint8_t)at;
    }
    if (o.value_count == 0)
        return -ENOENT;
    return clp_profile_encode(p, &o, ret);
}
