set(inproc ${CMAKE_SOURCE_DIR}/sampler/inproc)
clp_unit_test(test-images SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-images.c ${inproc}/images.c
  ${inproc}/maps.c ${inproc}/self_memory.c ${inproc}/clock.c USES clp_unwind clp_core)
