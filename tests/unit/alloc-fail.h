/* Allocation failure on order.  A test program that links alloc-fail.c with --wrap (see
 * clp_test_alloc_fail in base.cmake) can let any allocation of the code under test fail. */
#ifndef CLP_TESTS_UNIT_ALLOC_FAIL_H
#define CLP_TESTS_UNIT_ALLOC_FAIL_H

#include <stdint.h>

/* Let the allocation fail that comes after `allowed` more, and all later ones when `for_good`. */
void alloc_fail_after(uint64_t allowed, int for_good);
/* No more failures; returns how many there were since alloc_fail_after. */
uint64_t alloc_fail_stop(void);

#endif
