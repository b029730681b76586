#include "agent/types.h"

static const struct clp_type_info infos[CLP_TYPE_COUNT] = {
    [CLP_TYPE_CPU] = {.kind = CLP_SAMPLE_CPU, .values = {{"cpu", "nanoseconds"}}},
    [CLP_TYPE_WALL] = {.kind = CLP_SAMPLE_WALL, .values = {{"wall", "nanoseconds"}}},
    [CLP_TYPE_EXCEPTIONS] = {.kind = CLP_SAMPLE_EXCEPTION,
                             .values = {{"exceptions", "count"}},
                             .texts = {"exception_type", "exception_message"},
                             .text_is_class = {true, false}},
    [CLP_TYPE_ALLOCATIONS] = {.kind = CLP_SAMPLE_ALLOC,
                              .values = {{"alloc_objects", "count"}, {"alloc_space", "bytes"}},
                              .texts = {"allocation_class", "heap"},
                              .text_is_class = {true, false}},
    [CLP_TYPE_LOCKS] = {.kind = CLP_SAMPLE_LOCK,
                        .values = {{"lock_contentions", "count"}, {"lock_delay", "nanoseconds"}},
                        .texts = {"lock_owner", NULL},
                        .number = "lock_owner_id"},
    [CLP_TYPE_WAITS] = {.kind = CLP_SAMPLE_WAIT,
                        .values = {{"waits", "count"}, {"wait_time", "nanoseconds"}}},
    [CLP_TYPE_LIVEHEAP] = {.kind = CLP_SAMPLE_LIVE,
                           .values = {{"inuse_objects", "count"}, {"inuse_space", "bytes"}},
                           .texts = {"allocation_class", "age"},
                           .text_is_class = {true, false},
                           .number = "generation",
                           .number_as_text = true,
                           .number_words = {"0", "1", "2", "large", "pinned"}},
    [CLP_TYPE_GC] = {.kind = CLP_SAMPLE_GC,
                     .values = {{"gc_collections", "count"}, {"gc_pause", "nanoseconds"}},
                     .texts = {"gc_reason", "gc_kind"},
                     .number = "gc_generation",
                     .number_as_text = true},
};

const struct clp_type_info *clp_type_info(enum clp_profile_type type)
{
    return &infos[type < CLP_TYPE_COUNT ? type : CLP_TYPE_CPU];
}

enum clp_profile_type clp_type_of_kind(unsigned kind)
{
    for (int i = 0; i < CLP_TYPE_COUNT; i++)
        if (infos[i].kind == kind)
            return (enum clp_profile_type)i;
    return CLP_TYPE_COUNT;
}

uint32_t clp_types_sample_kinds(uint32_t types)
{
    uint32_t kinds = 0;
    for (int i = 0; i < CLP_TYPE_COUNT; i++)
        if (types & 1u << i)
            kinds |= 1u << infos[i].kind;
    return kinds;
}

uint32_t clp_types_told(uint32_t types, unsigned runtime_major)
{
    bool all = runtime_major == 0 || runtime_major >= CLP_WIRE_WAITS_SINCE;
    return all ? types : types & ~(1u << CLP_TYPE_WAITS);
}
