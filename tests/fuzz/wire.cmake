clp_fuzzer(fuzz-wire SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-wire.c USES clp_wire
  CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/wire)
