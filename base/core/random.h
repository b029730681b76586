/* Random numbers for estimators and jitter: xorshift64* (Vigna 2016, "An experimental exploration
 * of Marsaglia's xorshift generators, scrambled"). The state is the caller's, and never 0. No
 * locks, no shared state: signal-safe where the state is. */
#ifndef CLP_BASE_CORE_RANDOM_H
#define CLP_BASE_CORE_RANDOM_H

#include <stdint.h>

static inline uint64_t clp_random_u64(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545f4914f6cdd1dull;
}

/* Uniform in [0, 1). */
static inline double clp_random_unit(uint64_t *state)
{
    return (double)(clp_random_u64(state) >> 11) * 0x1p-53;
}

#endif
