foreach(name spec bodies)
  clp_unit_test(test-eventpipe-${name} SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-eventpipe-${name}.c
    USES clp_agent)
endforeach()
clp_unit_test(test-eventpipe-build
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-eventpipe-build.c ${CMAKE_CURRENT_LIST_DIR}/nettrace-writer.c
  USES clp_agent m)
