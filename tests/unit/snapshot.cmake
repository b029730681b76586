# What the comparison with the runtime's stacks rests on, and what it taught the walk.
clp_unit_test(test-compare SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-compare.c
  ${CMAKE_SOURCE_DIR}/tests/snapshot/compare.c USES clp_core)
clp_unit_test(test-il-filters SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-il-filters.c
  USES clp_inproc_code clp_core)
clp_unit_test(test-walk-filter SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-walk-filter.c USES clp_unwind)
