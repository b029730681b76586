foreach(name unwind-forward unwind-recover unwind-tables unwind-prologue unwind-r2r unwind-walk)
  clp_unit_test(test-${name} SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-${name}.c USES clp_unwind)
endforeach()

# Signals at random instructions: TSan delays signals, so there is nothing random left.
if(NOT CLP_SANITIZE MATCHES thread)
  clp_unit_test(test-unwind-self SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-unwind-self.c
    USES clp_unwind)
  target_compile_options(test-unwind-self PRIVATE -O2 -fomit-frame-pointer)
  target_link_libraries(test-unwind-self PRIVATE pthread)
endif()

add_subdirectory(${CMAKE_SOURCE_DIR}/tests/walk ${CMAKE_BINARY_DIR}/tests/walk)
