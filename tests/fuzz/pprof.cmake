clp_fuzzer(fuzz-pprof SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-pprof.c USES clp_pprof
  CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/pprof)
