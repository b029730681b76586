# The capture in a plain C process: no runtime is needed, its two signal actions are made up.
set(CLP_CAPTURE_TEST_DIR ${CMAKE_CURRENT_LIST_DIR})

find_package(Threads REQUIRED)
add_library(clp_capture_harness STATIC ${CLP_CAPTURE_TEST_DIR}/capture-harness.c)
target_include_directories(clp_capture_harness PUBLIC ${CMAKE_SOURCE_DIR})
target_compile_definitions(clp_capture_harness PRIVATE _GNU_SOURCE)
target_compile_options(clp_capture_harness PRIVATE ${CLP_WARNINGS})
target_link_libraries(clp_capture_harness PUBLIC clp_inproc_capture Threads::Threads)

set(CLP_CAPTURE_TESTS spans capture-ring capture-proc thread-table stack-bounds probe)
# ThreadSanitizer hands signals on when it sees fit, so real timers tell nothing there.
if(NOT CLP_SANITIZE STREQUAL "thread")
  list(APPEND CLP_CAPTURE_TESTS capture-signal capture-fork capture-stacks thread-clocks thread-life
       timer-quota)
endif()
foreach(name ${CLP_CAPTURE_TESTS})
  clp_unit_test(test-${name} SOURCES ${CLP_CAPTURE_TEST_DIR}/test-${name}.c
    USES clp_capture_harness)
endforeach()
# They measure CPU time.
foreach(name thread-clocks thread-life timer-quota)
  if(TARGET test-${name})
    set_tests_properties(test-${name} PROPERTIES RUN_SERIAL ON)
  endif()
endforeach()

# What the handler calls and how much stack it takes is read from its object file.
if(NOT CLP_SANITIZE AND NOT CLP_FUZZ)
  foreach(check symbols stack)
    add_test(NAME signal-path-${check}
      COMMAND ${CLP_CAPTURE_TEST_DIR}/check-signal-path ${check} $<TARGET_OBJECTS:clp_sigpath>
        ${CMAKE_SOURCE_DIR}/tests/data/signal-path-symbols.txt)
    set_tests_properties(signal-path-${check} PROPERTIES LABELS unit TIMEOUT 60)
  endforeach()
endif()
