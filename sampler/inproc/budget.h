/* The library's own cost against what it may cost.  Pure: fed with clocks, tells what to do. */
#ifndef CLP_SAMPLER_INPROC_BUDGET_H
#define CLP_SAMPLER_INPROC_BUDGET_H

#include "base/core/core.h"

#include <stdbool.h>

#define CLP_BUDGET_WINDOW_NS (10 * CLP_NSEC_PER_SEC)
#define CLP_BUDGET_CORE_SHARE 50     /* 2 % of one core, */
#define CLP_BUDGET_PROCESS_SHARE 100 /* or 1 % of what the process used: whichever is more */
#define CLP_BUDGET_DOUBLINGS_MAX 7

struct clp_budget {
    uint64_t wall_ns, own_ns, process_ns; /* clocks at the window's start */
    unsigned doublings;                   /* of the sampling interval, in force now */
    uint64_t slowdowns;                   /* doublings since ever */
};

/* A new first window; keeps `slowdowns`. */
void clp_budget_begin(struct clp_budget *b, uint64_t wall_ns, uint64_t own_ns, uint64_t process_ns);

/* Is the window over? */
bool clp_budget_due(const struct clp_budget *b, uint64_t wall_ns);
/* Closes the window when it is over: beyond the budget one doubling more, below a quarter of it one
 * less. true when the number of doublings has changed. */
bool clp_budget_check(struct clp_budget *b, uint64_t wall_ns, uint64_t own_ns, uint64_t process_ns);

#endif
