if(TARGET clrpulse AND NOT CLP_FUZZ)
  add_test(NAME check-manual COMMAND ${CMAKE_CURRENT_LIST_DIR}/check-manual
    $<TARGET_FILE:clrpulse> ${CMAKE_BINARY_DIR}/share/man/man1/clrpulse.1)
  set_tests_properties(check-manual PROPERTIES LABELS unit TIMEOUT 60)
endif()

# What is deployed is held against the tools of those who run it.
add_test(NAME check-unit COMMAND ${CMAKE_CURRENT_LIST_DIR}/check-unit
  $<TARGET_FILE:clrpulse> ${CMAKE_SOURCE_DIR}/deploy/systemd)
set_tests_properties(check-unit PROPERTIES LABELS unit TIMEOUT 120 SKIP_RETURN_CODE 77)
if(TARGET clrpulse AND TARGET clrpulse_lib AND NOT CLP_FUZZ)
  add_test(NAME check-package COMMAND ${CMAKE_CURRENT_LIST_DIR}/check-package ${CMAKE_BINARY_DIR})
  set_tests_properties(check-package PROPERTIES LABELS unit TIMEOUT 300 SKIP_RETURN_CODE 77)
endif()
