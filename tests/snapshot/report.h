/* What was found, as JSON lines in the file that CLP_TEST_VERIFY_OUT names: each of the first
 * differences, and the totals whenever they have changed, with the number of stacks that each
 * method of the test program was compared in.  Loop thread. */
#ifndef CLP_TESTS_SNAPSHOT_REPORT_H
#define CLP_TESTS_SNAPSHOT_REPORT_H

#include "sampler/unwind/walk.h"
#include "tests/snapshot/compare.h"
#include "tests/snapshot/take.h"

struct clp_snapshot_totals {
    uint64_t compared, equal;            /* stacks */
    uint64_t exact;                      /* also without folding equal neighbours */
    uint64_t frames;                     /* of the truth, compared */
    uint64_t missing, invented;          /* frames */
    uint64_t incomplete;                 /* walks that say that they did not reach the root */
    uint64_t repaired;                   /* walks that met a hijacked return address */
    uint64_t refused;                    /* the runtime gave no stack */
    uint64_t skipped;                    /* exceptions without a snapshot */
    uint64_t truth_dynamic, our_dynamic; /* frames of methods without metadata */
};

void clp_snapshot_report_difference(const struct clp_snapshot *s, struct clp_comparison c,
                                    const struct clp_walk_result *walk,
                                    const struct clp_walk_frame *frames);
void clp_snapshot_report_totals(const struct clp_snapshot_totals *t, uint64_t now_ns);

#endif
