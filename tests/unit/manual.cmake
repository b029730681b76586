# What people read about commands, options and settings, compared with the tables and the program.
if(TARGET clrpulse AND NOT CLP_FUZZ)
  add_test(NAME check-manual COMMAND ${CMAKE_CURRENT_LIST_DIR}/check-manual
    $<TARGET_FILE:clrpulse> ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/share)
  add_test(NAME check-docs COMMAND ${CMAKE_CURRENT_LIST_DIR}/check-docs ${CMAKE_SOURCE_DIR})
  set_tests_properties(check-manual check-docs PROPERTIES LABELS unit TIMEOUT 60
    ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;PYTHONPATH=${CMAKE_SOURCE_DIR}/tools")
endif()

# What is deployed is held against the tools of those who run it.
add_test(NAME check-unit COMMAND ${CMAKE_CURRENT_LIST_DIR}/check-unit
  $<TARGET_FILE:clrpulse> ${CMAKE_SOURCE_DIR}/deploy/systemd)
set_tests_properties(check-unit PROPERTIES LABELS unit TIMEOUT 120 SKIP_RETURN_CODE 77)
if(TARGET clrpulse AND TARGET clrpulse_lib AND NOT CLP_FUZZ)
  add_test(NAME check-package COMMAND ${CMAKE_CURRENT_LIST_DIR}/check-package ${CMAKE_BINARY_DIR})
  set_tests_properties(check-package PROPERTIES LABELS unit TIMEOUT 300 SKIP_RETURN_CODE 77)
endif()
if(TARGET clrpulse)
  add_test(NAME check-deploy COMMAND ${CMAKE_CURRENT_LIST_DIR}/check-deploy
    $<TARGET_FILE:clrpulse> ${CMAKE_SOURCE_DIR}/deploy)
  set_tests_properties(check-deploy PROPERTIES LABELS unit TIMEOUT 60 SKIP_RETURN_CODE 77)
endif()
