#include "wire/tables.h"

#include "base/core/core.h"

static const struct clp_counter_info counters[] = {
#define CLP_COUNTER(id, name, kind, unit, text)                                                    \
    [CLP_CTR_##id] = {name, unit, text, CLP_COUNTER_##kind},
#include "wire/counters.def"
#undef CLP_COUNTER
};

static const char *const specials[] = {
    [CLP_SPECIAL_NONE] = "",
#define CLP_SPECIAL(id, text) [CLP_SPECIAL_##id] = text,
#include "wire/specials.def"
#undef CLP_SPECIAL
};

const struct clp_counter_info *clp_counter_info(unsigned counter)
{
    static const struct clp_counter_info none = {"", "", "", CLP_COUNTER_SUM};
    return counter < CLP_ARRAY_LEN(counters) ? &counters[counter] : &none;
}

const char *clp_special_text(uint32_t special)
{
    return special < CLP_ARRAY_LEN(specials) ? specials[special] : "";
}
