/* /proc/self/maps: the process's own memory, read without the loader's lock and without a heap.
 * Loop thread only (one static buffer). */
#ifndef CLP_SAMPLER_INPROC_MAPS_H
#define CLP_SAMPLER_INPROC_MAPS_H

#include "base/core/core.h"
#include "base/core/proctext.h"

#include <stdbool.h>

/* Called for each mapping in the order of addresses until it returns false; the entry's path lives
 * until it returns. */
typedef bool clp_maps_each_fn(void *user, const struct clp_map_entry *entry);

/* 0, or -errno of the open or read. A line that cannot be parsed is skipped. */
int clp_maps_each(clp_maps_each_fn *each, void *user) CLP_MUST_USE;

/* The one mapping that covers `address`, asked for alone where the kernel can (6.11: 1 to 3 us);
 * else by a read of all. The path is copied to `path` (cut; may be empty) and ret->path points
 * there; NULL, 0: not asked for. 0, -ENOENT, -errno. */
int clp_maps_find(uint64_t address, struct clp_map_entry *ret, char *path,
                  size_t path_cap) CLP_MUST_USE;
/* Whether the file is kept open between two questions: the descriptors of the thread that asks are
 * its own. Closes it. */
void clp_maps_keep_open(bool keep);
/* Does the kernel answer for one mapping alone? */
bool clp_maps_find_is_cheap(void);
/* For tests: as on a kernel before 6.11. */
void clp_maps_forbid_query(bool forbid);

#endif
