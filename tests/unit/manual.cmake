# What people read about commands, options and settings, compared with the tables and the program.
if(TARGET clrpulse AND NOT CLP_FUZZ)
  add_test(NAME check-manual COMMAND ${CMAKE_CURRENT_LIST_DIR}/check-manual
    $<TARGET_FILE:clrpulse> ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/share)
  add_test(NAME check-docs COMMAND ${CMAKE_CURRENT_LIST_DIR}/check-docs ${CMAKE_SOURCE_DIR})
  set_tests_properties(check-manual check-docs PROPERTIES LABELS unit TIMEOUT 60
    ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;PYTHONPATH=${CMAKE_SOURCE_DIR}/tools")
endif()
