/* A leaf lock for tables inside a target: a futex mutex of one word, no owner, no TLS.
 *
 * Rules: never held across a call into the runtime (two of four measured runs deadlocked
 * otherwise), never taken in a signal handler, held for a bounded number of steps. */
#ifndef CLP_BASE_CORE_LOCK_H
#define CLP_BASE_CORE_LOCK_H

#include <stdatomic.h>
#include <stdint.h>

struct clp_lock {
    _Atomic uint32_t word; /* 0 free, 1 held, 2 held with waiters */
};

void clp_lock(struct clp_lock *l);
void clp_unlock(struct clp_lock *l);

#endif
