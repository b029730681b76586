# The agent from inside, and from outside against a stand-in for a target: no .NET is needed, so these
# also run under the sanitizers.
add_executable(fake-library ${CMAKE_SOURCE_DIR}/tests/tools/fake-library.c)
target_include_directories(fake-library PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_definitions(fake-library PRIVATE _GNU_SOURCE)
target_compile_options(fake-library PRIVATE ${CLP_WARNINGS})
target_link_libraries(fake-library PRIVATE clp_wire clp_base clp_core)

