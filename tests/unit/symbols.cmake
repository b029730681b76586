clp_unit_test(test-managed-name SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-managed-name.c
  USES clp_symbols)

clp_unit_test(test-demangle SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-demangle.c USES clp_symbols)

# One library in three shapes: whole, stripped, and its separate debug file.
set(fixture ${CMAKE_CURRENT_BINARY_DIR}/symbols-fixture)
add_library(symbols-fixture SHARED ${CMAKE_CURRENT_LIST_DIR}/fixtures/symbols-library.c)
target_include_directories(symbols-fixture PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_options(symbols-fixture PRIVATE ${CLP_WARNINGS} -O1 -fno-lto)
target_link_options(symbols-fixture PRIVATE -Wl,--build-id=sha1)
add_custom_command(TARGET symbols-fixture POST_BUILD
  COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:symbols-fixture> ${fixture}.so
  COMMAND ${CMAKE_STRIP} --strip-all -o ${fixture}-stripped.so ${fixture}.so
  COMMAND ${CMAKE_OBJCOPY} --only-keep-debug ${fixture}.so ${fixture}.debug)

clp_unit_test(test-native-symbols SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-native-symbols.c
  USES clp_symbols)
target_compile_definitions(test-native-symbols PRIVATE CLP_FIXTURE="${fixture}")
add_dependencies(test-native-symbols symbols-fixture)
clp_test_alloc_fail(test-native-symbols)

clp_unit_test(test-pdb SOURCES ${CMAKE_CURRENT_LIST_DIR}/test-pdb.c USES clp_symbols)
clp_test_alloc_fail(test-pdb)
