/* What the library's thread does in each round: serve the readers, collect, account, write.
 * Loop thread only. */
#ifndef CLP_SAMPLER_INPROC_ENGINE_H
#define CLP_SAMPLER_INPROC_ENGINE_H

#include "base/core/core.h"
#include "sampler/inproc/loop.h"
#include "wire/wire.h"

#include <stdbool.h>

/* On the loop thread, before anything else; `own_descriptors`: its descriptor table is its own. */
void clp_engine_begin(const struct clp_loop_runtime *runtime, bool own_descriptors);
/* The runtime may be asked now: enumeration is made in the next round. */
void clp_engine_runtime_ready(void);
void clp_engine_announce(const struct clp_attach_data *attach);

#define CLP_ENGINE_IDLE UINT64_MAX
/* One round. Answers how long to sleep at most, or CLP_ENGINE_IDLE: nobody listens, nothing is due.
 */
uint64_t clp_engine_round(void);

/* A reader was announced and is neither welcome yet nor gone. */
bool clp_engine_greets(void);

/* The process ends: accounts for everything, writes MARK 0 to each reader, until `deadline_ns`. */
void clp_engine_last_words(uint64_t deadline_ns);
/* No timers, signal given back, links closed. */
void clp_engine_end(void);

#endif
