clp_fuzzer(fuzz-il-filters SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-il-filters.c
  USES clp_inproc_code clp_core CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/il-filters)
