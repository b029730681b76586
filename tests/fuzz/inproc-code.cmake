foreach(name signature pe-layout)
  clp_fuzzer(fuzz-${name} SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-${name}.c
    USES clp_inproc_code clp_core CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/${name})
endforeach()
clp_fuzzer(fuzz-contract SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-contract.c
  ${CMAKE_SOURCE_DIR}/sampler/inproc/contract.c USES clp_core
  CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/contract)
