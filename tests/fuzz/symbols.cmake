clp_fuzzer(fuzz-managed-name SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-managed-name.c
  USES clp_symbols CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/managed-name)
clp_fuzzer(fuzz-elf-symbols SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-elf-symbols.c
  USES clp_symbols CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/elf-symbols)
clp_fuzzer(fuzz-demangle SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-demangle.c
  USES clp_symbols CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/demangle)
clp_fuzzer(fuzz-pdb SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-pdb.c
  USES clp_symbols CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/pdb)
