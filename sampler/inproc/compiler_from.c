#include "sampler/inproc/compiler_from.h"

uint32_t clp_compiler_made_from(const uint16_t *name, uint32_t len, const uint16_t **ret_start)
{
    *ret_start = name;
    uint32_t found = 0;
    while (len > 0 && name[0] == '<') {
        uint32_t depth = 1, i = 1;
        for (; i < len && depth > 0; i++)
            depth += name[i] == '<' ? 1 : name[i] == '>' ? -1u : 0;
        if (depth > 0)
            break;
        name++;
        len = i - 2;
        *ret_start = name;
        found = len;
    }
    return found;
}
