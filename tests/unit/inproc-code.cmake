# The tables of managed code and the parsers beside them: no runtime is needed.
foreach(name slots strings code-index code-table signature pe-layout compiler-from gate)
  set(extra)
  if(name STREQUAL gate)
    set(extra ${CMAKE_SOURCE_DIR}/sampler/inproc/gate.c)
  endif()
  clp_unit_test(test-${name} SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-${name}.c ${extra}
    USES clp_inproc_code clp_core)
endforeach()
set(inproc ${CMAKE_SOURCE_DIR}/sampler/inproc)
clp_unit_test(test-pe-images SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-pe-images.c ${inproc}/pe_images.c
  ${inproc}/maps.c ${inproc}/self_memory.c USES clp_inproc_code clp_unwind clp_core)
find_package(Threads REQUIRED)
target_link_libraries(test-gate PRIVATE Threads::Threads)

if(TARGET clrpulse_lib)
  add_test(NAME library-interface
    COMMAND ${CMAKE_CURRENT_LIST_DIR}/check-library $<TARGET_FILE:clrpulse_lib>)
  file(STRINGS ${CMAKE_SOURCE_DIR}/wire/clsid.h clsid_line REGEX "define CLP_CLSID_TEXT")
  string(REGEX MATCH "[0-9a-f-]+-[0-9a-f-]+" clsid "${clsid_line}")
  add_test(NAME library-portable
    COMMAND ${CMAKE_SOURCE_DIR}/tests/musl/check-portable $<TARGET_FILE:clrpulse_lib>
      ${CMAKE_SOURCE_DIR}/sampler/inproc/imports.txt ${clsid} ${CMAKE_SOURCE_DIR}/tests/musl/host.c)
  set_tests_properties(library-interface library-portable PROPERTIES LABELS unit TIMEOUT 60)
endif()
