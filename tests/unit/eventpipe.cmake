clp_unit_test(test-ipc SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-ipc.c USES clp_eventpipe)
clp_unit_test(test-discover SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-discover.c USES clp_eventpipe)
clp_unit_test(test-journal SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-journal.c USES clp_eventpipe)
