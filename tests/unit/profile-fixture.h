/* Short ways to fill a profile, for the tests of pprof/. */
#ifndef CLP_TESTS_UNIT_PROFILE_FIXTURE_H
#define CLP_TESTS_UNIT_PROFILE_FIXTURE_H

#include "tests/unit/clp-cmocka.h"

#include "pprof/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One type, "cpu" in nanoseconds, with these ceilings (NULL: the default ones). */
static inline struct clp_profile *cpu_profile(const struct clp_profile_limits *limits)
{
    static const struct clp_value_type cpu = {"cpu", "nanoseconds"};
    struct clp_profile_config config = {.sample_types = &cpu, .sample_type_count = 1};
    struct clp_profile *p = NULL;
    if (limits)
        config.limits = *limits;
    assert_int_equal(clp_profile_new(&config, &p), 0);
    return p;
}

/* cpu in nanoseconds and allocations in objects and bytes. */
static inline struct clp_profile *wide_profile(void)
{
    static const struct clp_value_type types[] = {
        {"alloc_objects", "count"}, {"alloc_space", "bytes"}, {"cpu", "nanoseconds"}};
    struct clp_profile_config config = {
        .sample_types = types,
        .sample_type_count = 3,
        .period_type = {"cpu", "nanoseconds"},
        .period = 10000000,
    };
    struct clp_profile *p = NULL;
    assert_int_equal(clp_profile_new(&config, &p), 0);
    return p;
}

/* A stack from text: "leaf;caller;root". */
static inline uint32_t stack_of(struct clp_profile *p, const char *frames)
{
    char copy[1024];
    uint32_t locations[64];
    size_t count = 0;
    char *rest = NULL;
    strcpy(copy, frames);
    for (char *f = strtok_r(copy, ";", &rest); f; f = strtok_r(NULL, ";", &rest))
        locations[count++] = clp_profile_frame(p, f);
    return clp_profile_stack(p, locations, count);
}

static inline void add_cpu(struct clp_profile *p, const char *frames, double value)
{
    clp_profile_add(p, stack_of(p, frames), CLP_PROFILE_NO_LABELS, &value);
}

#endif
