/* Two lists of frames against each other, leaf first: which are in one and not in the other. */
#ifndef CLP_TESTS_SNAPSHOT_COMPARE_H
#define CLP_TESTS_SNAPSHOT_COMPARE_H

#include <stdint.h>

struct clp_comparison {
    uint32_t missing;  /* in the truth only */
    uint32_t invented; /* in ours only */
};

/* Adjacent equal entries become one. The new length. */
uint32_t clp_compare_fold(uint32_t *ids, uint32_t count);

/* By the longest common subsequence, so that one wrong frame does not make all others wrong. */
struct clp_comparison clp_compare(const uint32_t *truth, uint32_t truth_count, const uint32_t *ours,
                                  uint32_t our_count);

#endif
