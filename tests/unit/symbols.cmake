clp_unit_test(test-managed-name SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-managed-name.c
  USES clp_symbols)
