#include "wire/ring.h"

#include <errno.h>
#include <string.h>

int clp_ring_open(struct clp_ring *r, void *mapping, size_t mapped_bytes)
{
    struct clp_wire_header *h = mapping;
    if (mapped_bytes < CLP_WIRE_HEADER_BYTES + CLP_WIRE_RING_MIN_BYTES)
        return -EPROTO;
    uint32_t ring_bytes = h->ring_bytes;
    if (h->magic != CLP_WIRE_MAGIC || h->version != CLP_WIRE_VERSION || ring_bytes == 0 ||
        (ring_bytes & (ring_bytes - 1)) != 0 || ring_bytes != mapped_bytes - CLP_WIRE_HEADER_BYTES)
        return -EPROTO;
    if (atomic_load(&h->head) != 0 || atomic_load(&h->tail) != 0)
        return -EPROTO;
    *r = (struct clp_ring){
        .header = h, .data = (uint8_t *)mapping + CLP_WIRE_HEADER_BYTES, .bytes = ring_bytes};
    return 0;
}

uint32_t clp_ring_room(const struct clp_ring *r)
{
    uint64_t used = r->head - atomic_load_explicit(&r->header->tail, memory_order_acquire);
    return used <= r->bytes ? r->bytes - (uint32_t)used : 0;
}

void *clp_ring_reserve(struct clp_ring *r, uint32_t bytes)
{
    r->reserved = r->head;
    if (bytes < sizeof(struct clp_rec) || bytes % 8 != 0 || bytes > CLP_WIRE_RECORD_MAX_BYTES)
        return NULL;
    uint32_t at = (uint32_t)(r->head & (r->bytes - 1));
    uint32_t to_end = r->bytes - at;
    uint32_t pad = bytes > to_end ? to_end : 0;
    if (bytes + pad > clp_ring_room(r))
        return NULL;
    if (pad) {
        struct clp_rec filler = {.size = pad, .type = CLP_REC_PAD};
        memcpy(r->data + at, &filler, sizeof(filler));
        at = 0;
    }
    r->reserved = r->head + pad + bytes;
    return r->data + at;
}

void clp_ring_commit(struct clp_ring *r)
{
    r->head = r->reserved;
    atomic_store_explicit(&r->header->head, r->head, memory_order_release);
}

int clp_ring_write(struct clp_ring *r, const struct clp_rec *rec)
{
    if (rec->size < sizeof(*rec) || rec->size % 8 != 0 || rec->size > CLP_WIRE_RECORD_MAX_BYTES)
        return -EINVAL;
    void *to = clp_ring_reserve(r, rec->size);
    if (!to)
        return -ENOSPC;
    memcpy(to, rec, rec->size);
    clp_ring_commit(r);
    return 0;
}
