clp_unit_test(test-bytes SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-bytes.c USES clp_core)
clp_unit_test(test-text SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-text.c USES clp_core)
clp_unit_test(test-arena SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-arena.c USES clp_core)
