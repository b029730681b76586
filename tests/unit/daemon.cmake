# Named so that base.cmake, whose functions it uses, comes before it.
# The agent from inside, and from outside against a stand-in for a target: no .NET is needed, so these
# also run under the sanitizers.
add_executable(fake-library ${CMAKE_SOURCE_DIR}/tests/tools/fake-library.c)
target_include_directories(fake-library PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_definitions(fake-library PRIVATE _GNU_SOURCE)
target_compile_options(fake-library PRIVATE ${CLP_WARNINGS})
target_link_libraries(fake-library PRIVATE clp_wire clp_base clp_core)


clp_unit_test(test-profile-build SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-profile-build.c
              USES clp_agent)
clp_test_alloc_fail(test-profile-build)
target_compile_definitions(test-profile-build PRIVATE CLP_VERSION="${PROJECT_VERSION}")
clp_unit_test(test-type-counts SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-type-counts.c USES clp_agent)
clp_test_alloc_fail(test-type-counts)
clp_unit_test(test-waits SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-waits.c USES clp_agent)
foreach(name walltime seq identity check roster status port memory health where limits)
  clp_unit_test(test-${name} SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-${name}.c USES clp_agent)
endforeach()
# `./dev stress` makes it half an hour's worth: 10 million stacks, a million code bodies.
set_tests_properties(test-memory PROPERTIES LABELS "unit;stress" TIMEOUT 900)
clp_unit_test(test-scan SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-scan.c USES clp_agent)
clp_unit_test(test-place SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-place.c USES clp_agent)

# A wall clock that can be set for one process.
add_library(step-clock MODULE ${CMAKE_SOURCE_DIR}/tests/tools/step-clock.c)
target_compile_definitions(step-clock PRIVATE _GNU_SOURCE)
target_compile_options(step-clock PRIVATE ${CLP_WARNINGS})
set_target_properties(step-clock PROPERTIES PREFIX "")

find_package(Python3 REQUIRED COMPONENTS Interpreter)
foreach(class TestRecord TestEnds TestRefusals TestNoTarget TestPs TestPermission TestAgent)
  string(REGEX REPLACE "^Test" "" name ${class})
  string(TOLOWER ${name} name)
  add_test(NAME integration-session-${name}
    COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/tests/integration/test_session.py ${class})
  set_tests_properties(integration-session-${name} PROPERTIES LABELS integration TIMEOUT 180
    ENVIRONMENT
    "CLP_CLRPULSE=$<TARGET_FILE:clrpulse>;CLP_FAKE=$<TARGET_FILE:fake-library>;CLP_SANITIZED=${CLP_SANITIZE}")
endforeach()

# The same stand-in; minutes long.
add_test(NAME stress-daemon_is_stopped CONFIGURATIONS Stress
  COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/tests/integration/test_daemon.py
    TestWindows.test_agent_is_stopped)
set_tests_properties(stress-daemon_is_stopped PROPERTIES LABELS stress TIMEOUT 600 ENVIRONMENT
  "CLP_CLRPULSE=$<TARGET_FILE:clrpulse>;CLP_FAKE=$<TARGET_FILE:fake-library>;CLP_STEP_CLOCK=$<TARGET_FILE:step-clock>;CLP_STOP_SECONDS=300")

foreach(class TestWindows TestTargets TestSettings TestEnd TestStatus TestCheck)
  string(REGEX REPLACE "^Test" "" name ${class})
  string(TOLOWER ${name} name)
  add_test(NAME integration-daemon-${name}
    COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/tests/integration/test_daemon.py ${class})
  set_tests_properties(integration-daemon-${name} PROPERTIES LABELS integration TIMEOUT 240
    ENVIRONMENT
    "CLP_CLRPULSE=$<TARGET_FILE:clrpulse>;CLP_FAKE=$<TARGET_FILE:fake-library>;CLP_STEP_CLOCK=$<TARGET_FILE:step-clock>;CLP_SANITIZED=${CLP_SANITIZE}")
endforeach()

# Who starts the agent and watches it.
foreach(class TestHealth TestManager TestSmallPlaces TestHostile)
  string(REGEX REPLACE "^Test" "" name ${class})
  string(TOLOWER ${name} name)
  add_test(NAME integration-deploy-${name}
    COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/tests/integration/test_deploy.py ${class})
  set_tests_properties(integration-deploy-${name} PROPERTIES LABELS integration TIMEOUT 240
    RUN_SERIAL ON ENVIRONMENT
    "CLP_CLRPULSE=$<TARGET_FILE:clrpulse>;CLP_FAKE=$<TARGET_FILE:fake-library>;CLP_STEP_CLOCK=$<TARGET_FILE:step-clock>;CLP_SANITIZED=${CLP_SANITIZE}")
endforeach()
