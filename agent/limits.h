/* What a control group lets a process have: cores and memory, cgroup version 1 and 2.
 *
 * The tightest limit from the process's group up to the root counts, as far as this mount
 * namespace shows them: in a container that is often only the container's own group. */
#ifndef CLP_AGENT_LIMITS_H
#define CLP_AGENT_LIMITS_H

#include "base/core/core.h"

#define CLP_LIMITS_NO_CPU UINT32_MAX
#define CLP_LIMITS_NO_MEMORY UINT64_MAX

struct clp_limits {
    uint32_t millicores;   /* 1,000 is one core; CLP_LIMITS_NO_CPU: no limit is known */
    uint64_t memory_bytes; /* CLP_LIMITS_NO_MEMORY: no limit is known */
};

/* Of a process; 0: of this one. `proc` and `groups` are "/proc" and "/sys/fs/cgroup"; tests give
 * their own. Never fails: what cannot be read is no limit. */
void clp_limits_read(const char *proc, const char *groups, int32_t pid, struct clp_limits *ret);

/* A share of a whole core, lowered in proportion where there is less than one. */
uint32_t clp_limits_budget_ppm(const struct clp_limits *l, uint32_t ppm);
/* The cost of something as seen by who has less than one core. */
uint64_t clp_limits_cost_ns(const struct clp_limits *l, uint64_t ns);
/* By how much to divide the tables of each of `targets`, each of which may take
 * CLP_LIMITS_TABLES_BYTES: four whole ones, less where memory is short. At least 1. */
#define CLP_LIMITS_TABLES_BYTES (40ull << 20)
unsigned clp_limits_share(const struct clp_limits *l, size_t targets);

#endif
