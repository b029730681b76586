/* Names of code in a program that is compiled ahead of time (NativeAOT): its runtime tells of no
 * methods, so they come from the symbols of the executable. Other modules have no managed code.
 *
 * One owner; not thread-safe. */
#ifndef CLP_AGENT_EVENTPIPE_NATIVE_H
#define CLP_AGENT_EVENTPIPE_NATIVE_H

#include "base/core/core.h"
#include "sampler/symbols/native_symbols.h"

#include <stdbool.h>

struct clp_native;

/* `root_fd`: the process's root. `symbols` is the owner's and outlives it. 0, -ENOENT when there is
 * no executable to be found, -ENOMEM. */
int clp_native_new(int32_t pid, int root_fd, struct clp_symbols *symbols,
                   struct clp_native **ret) CLP_MUST_USE;
struct clp_native *clp_native_free(struct clp_native *n); /* NULL is fine; returns NULL */
/* False for an address outside the executable's code. */
bool clp_native_name(struct clp_native *n, uint64_t address, char *name, size_t cap);

/* The part that reads foreign text, for tests: start and end in memory and the file offset of the
 * executable mapping of `exe` (a path as in maps) in /proc/PID/maps. */
struct clp_native_range {
    uint64_t start, end, offset;
};
bool clp_native_find_range(const char *maps, size_t len, const char *exe,
                           struct clp_native_range *ret);

#endif
