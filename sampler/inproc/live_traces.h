/* Stacks of allocations that live for as long as a sampled object does: each is kept once, with
 * its class. Of a fixed size in all. Loop thread. */
#ifndef CLP_SAMPLER_INPROC_LIVE_TRACES_H
#define CLP_SAMPLER_INPROC_LIVE_TRACES_H

#include "base/core/core.h"

#define CLP_LIVE_TRACES_BYTES (1u << 20)
#define CLP_LIVE_TRACES_MAX 8192u
#define CLP_LIVE_TRACE_NONE UINT32_MAX

struct clp_live_trace {
    uint64_t hash;
    uint32_t number; /* of this trace */
    uint32_t refs;
    uint32_t size; /* with what follows it */
    uint16_t count, flags, text_len, reserved;
    uint64_t frames[]; /* then the text */
};

int clp_live_traces_init(void) CLP_MUST_USE; /* idempotent; 0 or -ENOMEM */
/* The number of this stack with this text, one more reference to it; NONE when there is no room. */
uint32_t clp_live_traces_take(const uint64_t *frames, uint16_t count, uint16_t flags,
                              const char *text, uint16_t text_len);
void clp_live_traces_drop(uint32_t number);
/* Valid until the next take. */
const struct clp_live_trace *clp_live_traces_at(uint32_t number);
static inline const char *clp_live_trace_text(const struct clp_live_trace *t)
{
    return (const char *)(t->frames + t->count);
}
size_t clp_live_traces_bytes(void);

#endif
