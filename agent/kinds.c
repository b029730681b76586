#include "agent/kinds.h"

#include "wire/wire.h"

#include <errno.h>

#define VALUES_MAX 2

static const struct {
    const char *values[VALUES_MAX]; /* sample types, the preferred one last */
    const char *period_unit;        /* of the first as period type; NULL: the model's period */
} kinds[CLP_TYPE_COUNT] = {
    [CLP_TYPE_CPU] = {{"cpu"}, "nanoseconds"},
    [CLP_TYPE_WALL] = {{"wall"}, "nanoseconds"},
};

/* A thread's CPU time is a part of its wall time. */
uint32_t clp_kinds_wire(uint32_t types)
{
    uint32_t cpu = types & (1u << CLP_TYPE_CPU | 1u << CLP_TYPE_WALL) ? 1u << CLP_SAMPLE_CPU : 0;
    return cpu | (types & 1u << CLP_TYPE_WALL ? 1u << CLP_SAMPLE_WALL : 0);
}

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
    if (kinds[kind].period_unit)
        o.period_type = (struct clp_value_type){kinds[kind].values[0], kinds[kind].period_unit};
    return clp_profile_encode(p, &o, ret);
}
