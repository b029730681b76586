clp_unit_test(test-proctext SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-proctext.c USES clp_core)
