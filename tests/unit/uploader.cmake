foreach(module chunk spool directory reshape)
  clp_unit_test(test-${module} SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-${module}.c USES clp_uploader)
endforeach()
clp_test_alloc_fail(test-chunk)
# Their own small receivers, ports of the kernel's choice on the loopback.
foreach(module http verdict delivery)
  clp_unit_test(test-${module}
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-${module}.c ${CMAKE_CURRENT_LIST_DIR}/receiver.c
    USES clp_uploader)
endforeach()

# Stands in for an agent, for tests of delivery from outside.
add_executable(deliver ${CMAKE_SOURCE_DIR}/tests/tools/deliver.c)
target_include_directories(deliver PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_definitions(deliver PRIVATE _GNU_SOURCE)
target_compile_options(deliver PRIVATE ${CLP_WARNINGS})
target_link_libraries(deliver PRIVATE clp_uploader)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
foreach(class Kinds KindsDotnet Clients Outage Crash Disk Network Size Secrets)
  string(TOLOWER ${class} name)
  add_test(NAME integration-delivery-${name}
    COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/tests/integration/test_delivery.py
      Test${class})
  set_tests_properties(integration-delivery-${name} PROPERTIES LABELS integration TIMEOUT 300
    SKIP_RETURN_CODE 77
    ENVIRONMENT
    "CLP_DELIVER=$<TARGET_FILE:deliver>;CLP_CLRPULSE=$<TARGET_FILE:clrpulse>;CLP_SANITIZED=${CLP_SANITIZE}")
endforeach()
clp_unit_test(test-outbox
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-outbox.c ${CMAKE_CURRENT_LIST_DIR}/receiver.c
  USES clp_agent)
