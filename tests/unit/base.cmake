# clp_test_alloc_fail(test): its allocations, those of the linked modules included, go through
# alloc-fail.c.
function(clp_test_alloc_fail test)
  target_sources(${test} PRIVATE ${CMAKE_SOURCE_DIR}/tests/unit/alloc-fail.c)
  foreach(name malloc calloc realloc reallocarray strdup strndup)
    target_link_options(${test} PRIVATE -Wl,--wrap=${name})
  endforeach()
endfunction()

foreach(module strbuf map hash file log clock)
  clp_unit_test(test-${module} SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-${module}.c USES clp_base)
endforeach()
clp_test_alloc_fail(test-strbuf)
clp_test_alloc_fail(test-map)
clp_test_alloc_fail(test-file)
