/* What strata of events are called: the type of an exception, the class of an allocation.
 *
 * The stack of an event may find no room, and with it its texts; what was counted must not lose its
 * type for that. So the name of a stratum is kept beside its counter, before anything is counted in
 * it. Names are few: a stratum without one only costs the label of what no stack stands for. */
#ifndef CLP_SAMPLER_INPROC_EVENT_NAMES_H
#define CLP_SAMPLER_INPROC_EVENT_NAMES_H

#include "sampler/inproc/event_ring.h"

#include <stdatomic.h>
#include <stdbool.h>

struct clp_event_words;

#define CLP_EVENT_NAMES 1024u /* of so many UTF-16 units at most: */
#define CLP_EVENT_NAME_SHORT_UNITS 64u
#define CLP_EVENT_NAMES_LONG 128u /* longer ones */

/* Where a stratum keeps its name: `key` is whose it is now, 0 nobody's. */
struct clp_event_named {
    const _Atomic uint64_t *key;
    _Atomic uint32_t
        *name; /* number + 1; 0: none yet. Only a hint: it may be that of another key */
};

struct clp_event_name {
    _Atomic uint32_t state;
    uint16_t units;
    uint16_t detail; /* the caller's */
    _Atomic uint64_t key;
    struct clp_event_named of;
    bool unused; /* by the last sweep */
    uint16_t *text;
};

/* Keeps the name of the stratum of `key` unless it is kept. Any thread; a few instructions but for
 * the first time. `key` is not 0. */
void clp_event_name_keep(struct clp_event_named of, uint64_t key,
                         const struct clp_event_words *text, uint16_t detail);
/* The name under that hint, or NULL when it is not known. Loop thread; valid until the next sweep.
 */
const struct clp_event_name *clp_event_name_find(const _Atomic uint32_t *name, uint64_t key);
/* Gives back the names of strata that are somebody else's by now; once an epoch. Loop thread. */
void clp_event_names_sweep(void);
size_t clp_event_names_bytes(void);

#endif
