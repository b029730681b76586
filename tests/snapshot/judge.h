/* Shared by the judge and its report.  Loop thread. */
#ifndef CLP_TESTS_SNAPSHOT_JUDGE_H
#define CLP_TESTS_SNAPSHOT_JUDGE_H

#include "sampler/inproc/clr.h"

/* The function whose body a managed frame of a walk names; 0 = none. */
clr_function_id clp_judge_function(uint32_t body_id);

#endif
