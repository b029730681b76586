clp_fuzzer(fuzz-proctext SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-proctext.c USES clp_core
           CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/proctext)
