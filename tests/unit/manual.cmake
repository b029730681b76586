if(TARGET clrpulse AND NOT CLP_FUZZ)
  add_test(NAME check-manual COMMAND ${CMAKE_CURRENT_LIST_DIR}/check-manual
    $<TARGET_FILE:clrpulse> ${CMAKE_BINARY_DIR}/share/man/man1/clrpulse.1)
  set_tests_properties(check-manual PROPERTIES LABELS unit TIMEOUT 60)
endif()
