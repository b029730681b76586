clp_unit_test(test-wire SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-wire.c USES clp_wire)
