/* The sparse array of the runtime's "native format". Internal to sampler/unwind.
 * Source: dotnet/runtime readytorun-format.md, "NativeArray"; nativeformatreader.h. */
#ifndef CLP_SAMPLER_UNWIND_NATIVEFMT_H
#define CLP_SAMPLER_UNWIND_NATIVEFMT_H

#include <stdbool.h>

#include "base/core/core.h"

struct clp_native_array {
    const uint8_t *bytes;
    size_t len;
    size_t base; /* of the block index */
    uint32_t count;
    uint8_t index_shift; /* block index entries are 1 << shift bytes */
};

int clp_native_array_open(const uint8_t *bytes, size_t len,
                          struct clp_native_array *ret) CLP_MUST_USE;
/* Is there an element of that number? false as well for malformed bytes. */
bool clp_native_array_has(const struct clp_native_array *a, uint32_t index);

#endif
