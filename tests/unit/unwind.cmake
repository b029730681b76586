clp_unit_test(test-unwind-tables SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-unwind-tables.c
  USES clp_unwind)
add_subdirectory(${CMAKE_SOURCE_DIR}/tests/walk ${CMAKE_BINARY_DIR}/tests/walk)
