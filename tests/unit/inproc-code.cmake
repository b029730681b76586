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
  set_tests_properties(library-interface PROPERTIES LABELS unit TIMEOUT 60)
endif()
