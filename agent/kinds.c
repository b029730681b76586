#include "agent/kinds.h"

#include "agent/types.h"

#include <errno.h>

/* A thread's CPU time is a part of its wall time. */
uint32_t clp_kinds_wire(uint32_t types)
{
    uint32_t kinds = clp_types_sample_kinds(types);
    return kinds | (kinds & 1u << CLP_SAMPLE_WALL ? 1u << CLP_SAMPLE_CPU : 0);
}

int clp_kind_encode(const struct clp_profile *p, enum clp_profile_type kind,
                    struct clp_encoded *ret)
{
    const struct clp_type_info *info = clp_type_info(kind);
    uint8_t indexes[CLP_TYPE_VALUES_MAX];
    struct clp_encode_options o = {.values = indexes};
    for (size_t i = 0; i < CLP_TYPE_VALUES_MAX && info->values[i].type; i++) {
        int at = clp_profile_value_index(p, info->values[i].type);
        if (at >= 0)
            indexes[o.value_count++] = (uint8_t)at;
    }
    if (o.value_count == 0)
        return -ENOENT;
    o.period_type = info->values[0];
    if (kind != CLP_TYPE_CPU && kind != CLP_TYPE_WALL) /* whose period is the model's */
        o.period = 1;
    return clp_profile_encode(p, &o, ret);
}
