/* The writer's side of a reader's ring: single producer, single consumer, no lock.
 *
 * Used by the library's one thread: no heap, no system call, never waits.  The memory is shared
 * with the reader, so everything that steers the writer (size, head) is a private copy, and the one
 * word that it reads back, the reader's tail, is only believed within the ring's bounds. */
#ifndef CLP_WIRE_RING_H
#define CLP_WIRE_RING_H

#include "base/core/core.h"
#include "wire/wire.h"

struct clp_ring {
    struct clp_wire_header *header;
    uint8_t *data;
    uint32_t bytes;
    uint64_t head;     /* what is published */
    uint64_t reserved; /* end of the record that is being written; = head when none is */
};

/* Takes over the mapping of a fresh shared memory object of `mapped_bytes` (the caller keeps the
 * mapping). 0; -EPROTO when magic, version or sizes do not fit. */
int clp_ring_open(struct clp_ring *r, void *mapping, size_t mapped_bytes) CLP_MUST_USE;

/* Room for one record of `bytes` (a multiple of 8, at most CLP_WIRE_RECORD_MAX_BYTES), or NULL when
 * the reader has not made room. Contiguous, aligned to 8, contents undefined. A second reserve
 * without a commit forgets the first. */
void *clp_ring_reserve(struct clp_ring *r, uint32_t bytes) CLP_MUST_USE;
/* Publishes the reserved record (release). */
void clp_ring_commit(struct clp_ring *r);
/* Copies a finished record (its rec.size counts) into the ring. 0; -ENOSPC when full; -EINVAL. */
int clp_ring_write(struct clp_ring *r, const struct clp_rec *rec) CLP_MUST_USE;

/* Free bytes now, or 0 when the reader's tail makes no sense. */
uint32_t clp_ring_room(const struct clp_ring *r);

#endif
