foreach(name ehframe r2r walk)
  clp_fuzzer(fuzz-${name} SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-${name}.c USES clp_unwind
    CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/${name})
endforeach()
