clp_unit_test(test-config SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-config.c USES clp_config)
clp_test_alloc_fail(test-config)
clp_unit_test(test-cli SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-cli.c USES clp_config)
