clp_unit_test(test-nettrace
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-nettrace.c ${CMAKE_CURRENT_LIST_DIR}/nettrace-writer.c
  USES clp_nettrace)
clp_test_alloc_fail(test-nettrace)
