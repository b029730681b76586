# Shared build rules.

set(CLP_WARNINGS -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
    -Wwrite-strings -Wvla -Wundef)
if(CLP_WERROR)
  list(APPEND CLP_WARNINGS -Werror)
endif()

if(CLP_SANITIZE)
  add_compile_options(-fsanitize=${CLP_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${CLP_SANITIZE})
endif()
if(CLP_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()

# clp_module(NAME SOURCES a.c b.c [USES lower layers or libraries])
# A static library of one folder.  Headers are included from the root: #include "base/core/text.h".
function(clp_module name)
  cmake_parse_arguments(M "" "" "SOURCES;USES" ${ARGN})
  add_library(${name} STATIC ${M_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
  target_compile_options(${name} PRIVATE ${CLP_WARNINGS})
  target_link_libraries(${name} PUBLIC ${M_USES})
endfunction()

# clp_in_target(TARGET...): code that is loaded into foreign processes. What a distribution's
# compiler adds by itself may need a newer libc, or one that is not glibc (__memcpy_chk).
function(clp_in_target)
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE -U_FORTIFY_SOURCE)
  endforeach()
endfunction()

# clp_unit_test(test-NAME SOURCES test-name.c USES modules): one cmocka program, run by ctest with
# the label "unit" (these also run under the sanitizers).
function(clp_unit_test name)
  cmake_parse_arguments(T "" "" "SOURCES;USES" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE
    CLP_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data")
  target_compile_options(${name} PRIVATE ${CLP_WARNINGS})
  target_link_libraries(${name} PRIVATE ${T_USES} PkgConfig::CMOCKA)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS unit TIMEOUT 60)
endfunction()

# clp_fuzzer(fuzz-NAME SOURCES fuzz-name.c USES modules CORPUS dir)
# With CLP_FUZZ a libFuzzer program; always a replay program that ctest runs over the corpus.
function(clp_fuzzer name)
  cmake_parse_arguments(F "" "CORPUS" "SOURCES;USES" ${ARGN})
  if(CLP_FUZZ)
    add_executable(${name} ${F_SOURCES})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${name} ${F_SOURCES} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay.c)
    add_test(NAME ${name}-corpus COMMAND ${name} ${F_CORPUS})
    set_tests_properties(${name}-corpus PROPERTIES LABELS unit TIMEOUT 120)
  endif()
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
  target_compile_options(${name} PRIVATE ${CLP_WARNINGS})
  target_link_libraries(${name} PRIVATE ${F_USES})
endfunction()
