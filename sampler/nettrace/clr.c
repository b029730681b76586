#include "sampler/nettrace/clr.h"

static const struct clp_clr_event events[] = {
#define CLP_CLR_EVENT(provider, id, name, layout) {CLP_PROVIDER_##provider, id, name, layout},
#include "sampler/nettrace/clr_events.def"
#undef CLP_CLR_EVENT
};

const struct clp_clr_event *clp_clr_event(enum clp_nettrace_provider provider, uint32_t id)
{
    if (provider == CLP_PROVIDER_OTHER)
        return NULL;
    for (size_t i = 0; i < CLP_ARRAY_LEN(events); i++)
        if (events[i].provider == provider &&
            (events[i].id == id || events[i].id == CLP_CLR_ANY_ID))
            return &events[i];
    return NULL;
}
