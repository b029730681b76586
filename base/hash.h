/* A keyed hash for tables whose keys come from targets: SipHash-1-3 with a key that is drawn once
 * per process, so that nobody can choose names that all collide.  The values differ from run to
 * run: never store them, never let them decide an order that is seen outside.  Thread-safe. */
#ifndef CLP_BASE_HASH_H
#define CLP_BASE_HASH_H

#include "base/core/core.h"

uint64_t clp_hash_bytes(const void *data, size_t len);
uint64_t clp_hash_u64(uint64_t v);
/* The same with a key of the caller's choice: for tests against the published vectors. */
uint64_t clp_hash_bytes_keyed(const void *data, size_t len, uint64_t k0, uint64_t k1);

#endif
