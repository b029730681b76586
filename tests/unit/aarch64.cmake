# On aarch64 the test of its walk; elsewhere the same by a cross compiler and an emulator.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  add_executable(test-unwind-aarch64 ${CMAKE_CURRENT_LIST_DIR}/test-unwind-aarch64.c)
  target_compile_definitions(test-unwind-aarch64 PRIVATE _GNU_SOURCE)
  target_compile_options(test-unwind-aarch64 PRIVATE ${CLP_WARNINGS} -O2)
  target_link_options(test-unwind-aarch64 PRIVATE -static)
  target_link_libraries(test-unwind-aarch64 PRIVATE clp_unwind clp_core)
  add_test(NAME test-unwind-aarch64 COMMAND test-unwind-aarch64)
  set_tests_properties(test-unwind-aarch64 PROPERTIES LABELS unit TIMEOUT 60)
elseif(NOT CLP_SANITIZE AND NOT CLP_FUZZ)
  add_test(NAME cross-aarch64
    COMMAND ${CMAKE_CURRENT_LIST_DIR}/check-aarch64 ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/aarch64)
  set_tests_properties(cross-aarch64 PROPERTIES LABELS unit TIMEOUT 300 SKIP_RETURN_CODE 77)
endif()
