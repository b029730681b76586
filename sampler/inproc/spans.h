/* The library's side of clp_span.h: cells by thread, names of endpoints, roots that have ended. */
#ifndef CLP_SAMPLER_INPROC_SPANS_H
#define CLP_SAMPLER_INPROC_SPANS_H

#include "base/core/core.h"
#include "sampler/inproc/clp_span.h"

#include <stdatomic.h>
#include <stdbool.h>

#define CLP_SPAN_CELLS_MAX 16384u
#define CLP_SPAN_ENDPOINTS_MAX 1024u
#define CLP_SPAN_ROOTS_ENDED_MAX 4096u

/* Local roots that a sample saw, by their hash: a root whose place another one took loses its late
 * name, nothing else. Written by the handler. */
#define CLP_SPAN_ROOTS_SEEN 4096u
static inline uint32_t clp_span_root_place(uint64_t root)
{
    return (uint32_t)(root * 0x9e3779b97f4a7c15ull >> 52);
}

/* Never 0. Every request asks when it ends, and hardly one was sampled: the tags are few enough to
 * stay in a core's cache, where the roots themselves are a miss each time. */
static inline uint8_t clp_span_root_tag(uint64_t root)
{
    return (uint8_t)(root * 0x9e3779b97f4a7c15ull >> 44 | 1);
}

/* A span as it is in force, on the cell's own thread (in its signal handlers too): nothing can
 * change meanwhile. `cell` NULL: no span. Handler. */
static inline void clp_span_read_own(const struct clp_span_cell *cell, struct clp_span *ret)
{
    *ret = (struct clp_span){0};
    if (cell)
        *ret = cell->copy[*(const volatile uint64_t *)&cell->version & 1];
}

/* The same from another thread. False when the thread wrote all the while: no span then. */
bool clp_span_read(const struct clp_span_cell *cell, struct clp_span *ret);

/* The cell of a live thread, or NULL. Any thread; takes a leaf lock, also below the threads' own.
 */
struct clp_span_cell *clp_spans_cell_of(int32_t tid);
/* Notes that a sample was taken under this root. Any thread, signal-safe. */
void clp_spans_saw_root(uint64_t root);

/* Sampling has begun, or ended. Loop. */
void clp_spans_live(bool live);
bool clp_spans_hook_runs(void);
/* The name of an endpoint, copied (CLP_SPAN_NAME_MAX_BYTES + 1); keeps its number in use. -ENOENT
 * for a number that is forgotten. Loop. */
int clp_spans_endpoint_name(uint32_t endpoint, char *ret) CLP_MUST_USE;
/* The next root that has ended; false when there is none. Loop. */
bool clp_spans_next_ended(uint64_t *ret_root, uint32_t *ret_endpoint);
/* The next endpoint of which requests have ended since this was asked before, and how many; *at is
 * 0 at first. Loop. */
bool clp_spans_next_count(uint32_t *at, uint32_t *ret_endpoint, uint32_t *ret_ended);
uint64_t clp_spans_refused(void); /* cells and ended roots beyond the ceilings */
size_t clp_spans_bytes(void);

#endif
