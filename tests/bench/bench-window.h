/* The window that the benchmarks of encoding and of intakes share: 10,000 distinct stacks of 40
 * frames. */
#ifndef CLP_TESTS_BENCH_WINDOW_H
#define CLP_TESTS_BENCH_WINDOW_H

#include "pprof/encode.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BENCH_STACKS 10000u
#define BENCH_FRAMES 40u
#define BENCH_NAMES 2000u
#define BENCH_TYPES_MAX 2u

static inline double bench_cpu_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Half of each stack is its own, half is shared by all. */
static inline struct clp_profile *bench_window(const struct clp_value_type *types, size_t count)
{
    const struct clp_profile_config c = {.sample_types = types, .sample_type_count = count};
    struct clp_profile *p = NULL;
    uint32_t names[BENCH_NAMES], frames[BENCH_FRAMES];
    double values[BENCH_TYPES_MAX];
    if (count > BENCH_TYPES_MAX || clp_profile_new(&c, &p) < 0)
        exit(1);
    for (uint32_t i = 0; i < BENCH_NAMES; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "Company.Product.Component%u.Method%u", i % 97, i);
        names[i] = clp_profile_frame(p, name);
    }
    for (uint32_t i = 0; i < BENCH_STACKS; i++) {
        for (uint32_t k = 0; k < BENCH_FRAMES; k++)
            frames[k] =
                names[k < BENCH_FRAMES / 2 ? (i * 31 + k * k * 7 + i / 7 * k) % BENCH_NAMES : k];
        for (size_t k = 0; k < count; k++)
            values[k] = 1e7 * (double)(count - k) + i;
        clp_profile_add(p, clp_profile_stack(p, frames, BENCH_FRAMES), CLP_PROFILE_NO_LABELS,
                        values);
    }
    return p;
}

#endif
