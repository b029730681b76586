/* A method body: its header, and its sections. */
#include "sampler/inproc/il_filters.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct clp_il_range filters[CLP_IL_FILTERS_MAX];
    uint8_t header[CLP_IL_HEADER_BYTES] = {0};
    uint32_t at;
    memcpy(header, data, CLP_MIN(size, sizeof(header)));
    int r = clp_il_sections_at(header, size, &at);
    if (r != 0 && r != -EBADMSG)
        abort();
    if (r < 0 || !at)
        return 0;
    if (at >= size)
        abort();
    r = clp_il_filters(data + at, size - at, filters);
    if (r < 0 && r != -EBADMSG)
        abort();
    for (int i = 0; i < CLP_MIN(r, (int)CLP_IL_FILTERS_MAX); i++)
        if (filters[i].start >= filters[i].end)
            abort();
    return 0;
}
