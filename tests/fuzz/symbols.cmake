clp_fuzzer(fuzz-managed-name SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-managed-name.c
  USES clp_symbols CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/managed-name)
