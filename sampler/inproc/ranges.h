/* The executable mappings of the process, kept fresh within a share of the time.
 *
 * The list follows /proc/self/maps, never dl_iterate_phdr, whose lock the application may hold.  It
 * is read again when an address is not covered or a mapping is no longer what it was: at most once
 * a pass, and never for more than 2 % of the time.  A mapping is asked for again after 100 ms;
 * after a second on kernels that only tell all of them. Loop thread only. */
#ifndef CLP_SAMPLER_INPROC_RANGES_H
#define CLP_SAMPLER_INPROC_RANGES_H

#include "base/core/core.h"

#include <stdbool.h>

struct clp_range {
    uint64_t start, end, file_offset;
    uint64_t seen_ns; /* when the kernel last said so */
    uint32_t file;    /* image_files.h; CLP_NO_FILE: memory without a file, or the JIT's */
    uint32_t image;   /* the user's; starts as 0, kept while the mapping stays */
};

/* Idempotent, after clp_image_files_init. 0 or -ENOMEM. */
int clp_ranges_init(void) CLP_MUST_USE;
/* The mapping that holds `ip`, or NULL: not executable, or not known (any more). Valid until the
 * next call. `pass` numbers the rounds of the loop. */
struct clp_range *clp_ranges_find(uint64_t ip, uint64_t pass);
/* Did `ip` lie in executable memory when the kernel was last asked? Asks nobody. */
bool clp_ranges_held(uint64_t ip);

uint64_t clp_ranges_refused(void); /* beyond the ceiling */
size_t clp_ranges_bytes(void);

#endif
