clp_fuzzer(fuzz-profile-build SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-profile-build.c USES clp_agent
           CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/profile-build)
clp_fuzzer(fuzz-identity SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz-identity.c USES clp_agent
           CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/identity)
