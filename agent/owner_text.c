#include "agent/owner_text.h"

#include "sampler/symbols/managed_name.h"

#include <stdio.h>
#include <string.h>

#define MORE "; ..."

/* false: it does not fit. */
static bool add(char *ret, size_t *len, const char *name)
{
    size_t room = CLP_OWNER_TEXT_MAX - sizeof(MORE) - *len;
    const char *between = *len ? "; " : "";
    size_t n = strlen(between) + strlen(name);
    if (n > room)
        return false;
    *len += (size_t)snprintf(ret + *len, n + 1, "%s%s", between, name);
    return true;
}

void clp_owner_text(const struct clp_definitions *d, const uint64_t *frames, uint32_t count,
                    char ret[CLP_OWNER_TEXT_MAX])
{
    char name[CLP_NAME_MAX];
    size_t len = 0;
    ret[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        const struct clp_def_method *m = clp_frame_kind(frames[i]) == CLP_FRAME_MANAGED
                                             ? clp_definitions_method(d, clp_frame_id(frames[i]))
                                             : NULL;
        if (!m)
            continue;
        struct clp_managed_raw raw = clp_def_method_raw(m);
        clp_managed_name(&raw, name, sizeof(name));
        if (!add(ret, &len, name)) {
            if (len)
                memcpy(ret + len, MORE, sizeof(MORE));
            return;
        }
    }
}
