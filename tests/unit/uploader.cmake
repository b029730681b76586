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
# clp_delivery(NAME name FILE test_x.py CASE Class[.test] [FULL]): FULL ones are of `./dev stress`.
function(clp_delivery)
  cmake_parse_arguments(T "FULL" "NAME;FILE;CASE" "" ${ARGN})
  set(name integration-${T_NAME})
  set(when)
  set(labels integration)
  set(seconds 300)
  if(T_FULL)
    set(name stress-${T_NAME})
    set(when CONFIGURATIONS Stress)
    set(labels stress)
    set(seconds 1800)
  endif()
  add_test(NAME ${name} ${when}
    COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/tests/integration/${T_FILE} ${T_CASE})
  set_tests_properties(${name} PROPERTIES LABELS ${labels} TIMEOUT ${seconds} SKIP_RETURN_CODE 77
    ENVIRONMENT
    "CLP_DELIVER=$<TARGET_FILE:deliver>;CLP_CLRPULSE=$<TARGET_FILE:clrpulse>;CLP_SANITIZED=${CLP_SANITIZE};CLP_DELIVERY_FULL=$<BOOL:${T_FULL}>")
endfunction()

foreach(class Kinds KindsDotnet Clients Secrets People)
  string(TOLOWER delivery-${class} name)
  clp_delivery(NAME ${name} FILE test_delivery.py CASE Test${class})
endforeach()
foreach(class Tls Proxy Names Nginx)
  string(TOLOWER delivery-${class} name)
  clp_delivery(NAME ${name} FILE test_delivery_network.py CASE Test${class})
endforeach()
clp_delivery(NAME delivery-hostile FILE test_delivery_hostile.py CASE TestHostile)
foreach(class Outage Crowd Crash Disk Directory Size)
  string(TOLOWER delivery-${class} name)
  clp_delivery(NAME ${name} FILE test_delivery_hardship.py CASE Test${class})
endforeach()
foreach(case Outage.test_down Outage.test_ill Crash Size)
  string(TOLOWER delivery-${case} name)
  clp_delivery(NAME ${name} FILE test_delivery_hardship.py CASE Test${case} FULL)
endforeach()
clp_unit_test(test-outbox
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-outbox.c ${CMAKE_CURRENT_LIST_DIR}/receiver.c
  USES clp_agent)
