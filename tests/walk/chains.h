/* What stacks of the test program must look like. */
#ifndef CLP_TESTS_WALK_CHAINS_H
#define CLP_TESTS_WALK_CHAINS_H

#include <stdbool.h>
#include <stdint.h>

#define CHAINS_MAX 32

struct chains {
    unsigned long seen[CHAINS_MAX], exact[CHAINS_MAX];
};

/* Names are leaf first. NULL when nothing is wrong, else what. */
const char *chains_check(struct chains *c, char (*names)[200], uint32_t n);
/* Prints each chain's counts; true when all that were seen were exact, and at least `wanted`. */
bool chains_report(const struct chains *c, unsigned long wanted);

#endif
