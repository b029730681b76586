/* Where a method's exception filters lie, in its IL and in its native code.  Pure: bytes in,
 * offsets out. */
#ifndef CLP_SAMPLER_INPROC_IL_FILTERS_H
#define CLP_SAMPLER_INPROC_IL_FILTERS_H

#include "base/core/core.h"
#include "sampler/inproc/clr.h"

#include <stdbool.h>

#define CLP_IL_FILTERS_MAX 32u

struct clp_il_range {
    uint32_t start, end; /* IL offsets [start, end) */
};

/* Parts of a method body (header, code, sections; ECMA-335 II.25.4) that are read: the fat header,
 * and the sections behind the code. 0 for bodies that have no sections. -EBADMSG. */
#define CLP_IL_HEADER_BYTES 12u
int clp_il_sections_at(const uint8_t header[CLP_IL_HEADER_BYTES], size_t body_bytes,
                       uint32_t *ret) CLP_MUST_USE;
/* From the bytes of the sections: how many filters there are, the first CLP_IL_FILTERS_MAX of them
 * in `ret`; -EBADMSG. */
int clp_il_filters(const void *sections, size_t len,
                   struct clp_il_range ret[CLP_IL_FILTERS_MAX]) CLP_MUST_USE;

/* Does native offset `offset` lie in one of the filters, by the compiler's map of the method? */
bool clp_il_in_filter(const struct clp_il_range *filters, int filter_count,
                      const struct clr_il_map *map, uint32_t count, uint32_t offset);

#endif
