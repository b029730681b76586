/* Numbers of the wire: given out on first use, never used again, each leading to an entry of a
 * table until that entry is forgotten. */
#ifndef CLP_SAMPLER_INPROC_WIRE_IDS_H
#define CLP_SAMPLER_INPROC_WIRE_IDS_H

#include "sampler/inproc/slots.h"

/* Ids are the numbers of a table of entry numbers, from which none is given back. */
static inline void clp_wire_ids_init(struct clp_slots *ids, uint32_t max)
{
    clp_slots_init(ids, sizeof(uint32_t), 4096, max);
}

/* The id of an entry, which keeps it in *id; 0 at the ceiling. */
static inline uint32_t clp_wire_ids_of(struct clp_slots *ids, uint32_t *id, uint32_t entry)
{
    if (!*id) {
        *id = clp_slots_take(ids);
        if (*id)
            *(uint32_t *)clp_slots_at(ids, *id) = entry;
    }
    return *id;
}

/* The entry of an id; 0 = forgotten, or never given out. */
static inline uint32_t clp_wire_ids_entry(const struct clp_slots *ids, uint32_t id)
{
    return id == 0 || id > ids->high ? 0 : *(const uint32_t *)clp_slots_at(ids, id);
}

static inline void clp_wire_ids_forget(struct clp_slots *ids, uint32_t id)
{
    if (id)
        *(uint32_t *)clp_slots_at(ids, id) = 0;
}

#endif
