/* The shared memory of one reader: made by the reader, checked by the library.
 *
 * The reader allocates every page before it hands the object over: the pages are charged to the
 * reader's memory control group, never to the target's, and a write in the target can neither fail
 * nor raise SIGBUS.  The seals keep it so: nobody can shrink it under the target. */
#ifndef CLP_WIRE_MEMORY_H
#define CLP_WIRE_MEMORY_H

#include "base/core/core.h"
#include "wire/wire.h"

/* Reader: an allocated and sealed memfd with a filled header, ready for SCM_RIGHTS. `ring_bytes` is
 * a power of two in CLP_WIRE_RING_MIN_BYTES .. MAX. The caller closes *ret_fd and unmaps
 * *ret_mapping (CLP_WIRE_HEADER_BYTES + ring_bytes bytes). 0; -EINVAL for the size; -errno. */
int clp_wire_memory_create(uint32_t ring_bytes, int *ret_fd, void **ret_mapping) CLP_MUST_USE;

/* Library: checks seals, size and allocation of a received fd, before anything is mapped.
 * 0 with the size of the whole object; -EPERM for missing seals, -EINVAL for a size that fits no
 * ring, -ENOSPC for one that is not allocated, -errno. */
int clp_wire_memory_check(int fd, size_t *ret_bytes) CLP_MUST_USE;

#endif
