clp_fuzzer(fuzz-nettrace SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-nettrace.c USES clp_nettrace
           CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/nettrace)
clp_fuzzer(fuzz-eventpipe-build SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-eventpipe-build.c USES clp_agent
           CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/eventpipe-build)
