clp_unit_test(test-directory SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-directory.c USES clp_uploader)
clp_unit_test(test-http
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-http.c ${CMAKE_CURRENT_LIST_DIR}/receiver.c
  USES clp_uploader)
