clp_unit_test(test-unwind-tables SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-unwind-tables.c
  USES clp_unwind)
