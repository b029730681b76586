foreach(module profile encode decode gzip top)
  clp_unit_test(test-${module} SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-${module}.c
    USES clp_pprof)
endforeach()
clp_test_alloc_fail(test-profile)
clp_test_alloc_fail(test-encode)
clp_test_alloc_fail(test-decode)

# Other people's readers on our bytes: go tool pprof and protoc. Skipped (77) without them.
add_executable(make-profiles ${CMAKE_CURRENT_LIST_DIR}/make-profiles.c)
target_include_directories(make-profiles PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_definitions(make-profiles PRIVATE _GNU_SOURCE)
target_compile_options(make-profiles PRIVATE ${CLP_WARNINGS})
target_link_libraries(make-profiles PRIVATE clp_pprof)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME pprof-readers
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/pprof-readers.py
    $<TARGET_FILE:make-profiles> ${CMAKE_SOURCE_DIR}/pprof)
set_tests_properties(pprof-readers PROPERTIES LABELS unit TIMEOUT 120 SKIP_RETURN_CODE 77)

# These look into the encoded message themselves.
foreach(test test-encode test-decode)
  target_include_directories(${test} PRIVATE ${CMAKE_BINARY_DIR}/generated)
endforeach()
