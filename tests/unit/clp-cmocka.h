/* cmocka with the headers that it wants before itself. */
#ifndef CLP_TESTS_UNIT_CLP_CMOCKA_H
#define CLP_TESTS_UNIT_CLP_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
