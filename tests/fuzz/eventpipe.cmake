clp_fuzzer(fuzz-ipc SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-ipc.c USES clp_eventpipe
           CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/ipc)
