clp_fuzzer(fuzz-nettrace SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-nettrace.c USES clp_nettrace
           CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/nettrace)
