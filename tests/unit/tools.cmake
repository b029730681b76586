find_package(Python3 REQUIRED COMPONENTS Interpreter)
foreach(check layers style)
  add_test(NAME check-${check}
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check-${check} ${CMAKE_SOURCE_DIR})
endforeach()
add_test(NAME test-tools
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/test-tools.py ${CMAKE_SOURCE_DIR}/tools)
set_tests_properties(check-layers check-style test-tools PROPERTIES LABELS unit TIMEOUT 120)
