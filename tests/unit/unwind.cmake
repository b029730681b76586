foreach(name unwind-tables unwind-prologue unwind-r2r)
  clp_unit_test(test-${name} SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-${name}.c USES clp_unwind)
endforeach()
add_subdirectory(${CMAKE_SOURCE_DIR}/tests/walk ${CMAKE_BINARY_DIR}/tests/walk)
