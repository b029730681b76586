# The library's loop without a runtime: real capture, real walks, a stand-in for the CLR side.
set(CLP_LOOP_DIR ${CMAKE_SOURCE_DIR}/sampler/inproc)
set(CLP_LOOP_TEST_DIR ${CMAKE_CURRENT_LIST_DIR})

clp_unit_test(test-images SOURCES ${CLP_LOOP_TEST_DIR}/test-images.c ${CLP_LOOP_DIR}/images.c
  ${CLP_LOOP_DIR}/image_files.c ${CLP_LOOP_DIR}/ranges.c
  ${CLP_LOOP_DIR}/maps.c ${CLP_LOOP_DIR}/self_memory.c USES clp_unwind clp_inproc_capture)

add_library(clp_loop_under_test STATIC
  ${CLP_LOOP_DIR}/loop.c ${CLP_LOOP_DIR}/engine.c ${CLP_LOOP_DIR}/links.c ${CLP_LOOP_DIR}/feed.c
  ${CLP_LOOP_DIR}/collect.c ${CLP_LOOP_DIR}/hijack.c ${CLP_LOOP_DIR}/budget.c
  ${CLP_LOOP_DIR}/idset.c ${CLP_LOOP_DIR}/images.c
  ${CLP_LOOP_DIR}/image_files.c ${CLP_LOOP_DIR}/ranges.c ${CLP_LOOP_DIR}/maps.c
  ${CLP_LOOP_DIR}/self_memory.c ${CLP_LOOP_DIR}/wall.c ${CLP_LOOP_DIR}/wall_account.c
  ${CLP_LOOP_DIR}/wall_shot.c
  ${CLP_LOOP_DIR}/events.c ${CLP_LOOP_DIR}/event_session.c ${CLP_LOOP_DIR}/event_ring.c
  ${CLP_LOOP_DIR}/event_thread.c ${CLP_LOOP_DIR}/event_path.c ${CLP_LOOP_DIR}/event_member.c ${CLP_LOOP_DIR}/event_names.c
  ${CLP_LOOP_DIR}/event_exception.c ${CLP_LOOP_DIR}/event_sized.c ${CLP_LOOP_DIR}/event_alloc.c
  ${CLP_LOOP_DIR}/event_owner.c ${CLP_LOOP_DIR}/event_live.c
  ${CLP_LOOP_DIR}/live_table.c ${CLP_LOOP_DIR}/live_traces.c
  ${CLP_LOOP_DIR}/event_wait.c ${CLP_LOOP_DIR}/event_gc.c ${CLP_LOOP_DIR}/estimator.c
  ${CLP_LOOP_DIR}/control_total.c ${CLP_LOOP_DIR}/alloc_totals.c ${CLP_LOOP_DIR}/contract.c
  ${CLP_LOOP_DIR}/exported.c)
target_compile_definitions(clp_loop_under_test PRIVATE _GNU_SOURCE)
target_compile_options(clp_loop_under_test PRIVATE ${CLP_WARNINGS})
target_link_libraries(clp_loop_under_test PUBLIC clp_capture_harness clp_unwind clp_wire)

clp_unit_test(test-loop SOURCES ${CLP_LOOP_TEST_DIR}/test-loop.c ${CLP_LOOP_TEST_DIR}/loop-reader.c
  ${CLP_LOOP_TEST_DIR}/managed-double.c USES clp_loop_under_test clp_capture_harness)
set_source_files_properties(${CLP_LOOP_TEST_DIR}/managed-double.c PROPERTIES
  COMPILE_OPTIONS "-O1;-fno-omit-frame-pointer;-momit-leaf-frame-pointer;-fno-sanitize=all")
set_tests_properties(test-loop PROPERTIES RUN_SERIAL ON TIMEOUT 120)
clp_unit_test(test-loop-sessions SOURCES ${CLP_LOOP_TEST_DIR}/test-loop-sessions.c
  ${CLP_LOOP_TEST_DIR}/loop-reader.c ${CLP_LOOP_TEST_DIR}/managed-double.c
  USES clp_loop_under_test clp_capture_harness)

clp_unit_test(test-wall SOURCES ${CLP_LOOP_TEST_DIR}/test-wall.c
  ${CLP_LOOP_TEST_DIR}/managed-double.c USES clp_loop_under_test clp_capture_harness)
clp_unit_test(test-wall-account SOURCES ${CLP_LOOP_TEST_DIR}/test-wall-account.c
  ${CLP_LOOP_DIR}/wall_account.c)
# ThreadSanitizer's own threads and delays leave nothing to measure.
if(NOT CLP_SANITIZE STREQUAL "thread")
  clp_unit_test(test-wall-shot SOURCES ${CLP_LOOP_TEST_DIR}/test-wall-shot.c
    ${CLP_LOOP_DIR}/wall_shot.c ${CLP_LOOP_DIR}/self_memory.c USES clp_unwind clp_inproc_capture)
  target_link_libraries(test-wall-shot PRIVATE Threads::Threads)
endif()
clp_unit_test(test-budget SOURCES ${CLP_LOOP_TEST_DIR}/test-budget.c ${CLP_LOOP_DIR}/budget.c)
clp_unit_test(test-hijack SOURCES ${CLP_LOOP_TEST_DIR}/test-hijack.c ${CLP_LOOP_DIR}/hijack.c)
clp_unit_test(test-feed SOURCES ${CLP_LOOP_TEST_DIR}/test-feed.c ${CLP_LOOP_DIR}/feed.c
  ${CLP_LOOP_DIR}/idset.c USES clp_wire clp_core)

# Events: estimators, remembered walks, the ring.
clp_unit_test(test-estimator SOURCES ${CLP_LOOP_TEST_DIR}/test-estimator.c
  ${CLP_LOOP_DIR}/estimator.c)
target_link_libraries(test-estimator PRIVATE m)
clp_unit_test(test-control-total SOURCES ${CLP_LOOP_TEST_DIR}/test-control-total.c
  ${CLP_LOOP_DIR}/control_total.c ${CLP_LOOP_DIR}/estimator.c)
target_link_libraries(test-control-total PRIVATE m)
clp_unit_test(test-event-path SOURCES ${CLP_LOOP_TEST_DIR}/test-event-path.c
  ${CLP_LOOP_DIR}/event_path.c)
clp_unit_test(test-event-names SOURCES ${CLP_LOOP_TEST_DIR}/test-event-names.c
  ${CLP_LOOP_DIR}/event_names.c)
target_link_libraries(test-event-names PRIVATE Threads::Threads)
clp_unit_test(test-event-ring SOURCES ${CLP_LOOP_TEST_DIR}/test-event-ring.c
  ${CLP_LOOP_DIR}/event_ring.c USES clp_core)
target_link_libraries(test-event-ring PRIVATE Threads::Threads)
foreach(name gc live member sized thread)
  clp_unit_test(test-event-${name} SOURCES ${CLP_LOOP_TEST_DIR}/test-event-${name}.c
    ${CLP_LOOP_TEST_DIR}/managed-double.c USES clp_loop_under_test clp_capture_harness)
endforeach()
target_link_libraries(test-event-sized PRIVATE m)
clp_unit_test(test-events SOURCES ${CLP_LOOP_TEST_DIR}/test-events.c
  ${CLP_LOOP_TEST_DIR}/managed-double.c USES clp_loop_under_test clp_capture_harness)
clp_unit_test(test-alloc-totals SOURCES ${CLP_LOOP_TEST_DIR}/test-alloc-totals.c
  ${CLP_LOOP_TEST_DIR}/managed-double.c USES clp_loop_under_test clp_capture_harness)
clp_unit_test(test-contract SOURCES ${CLP_LOOP_TEST_DIR}/test-contract.c ${CLP_LOOP_DIR}/contract.c)
clp_unit_test(test-exported SOURCES ${CLP_LOOP_TEST_DIR}/test-exported.c ${CLP_LOOP_DIR}/exported.c
  ${CLP_LOOP_DIR}/maps.c ${CLP_LOOP_DIR}/self_memory.c USES clp_core)
clp_unit_test(test-live-table SOURCES ${CLP_LOOP_TEST_DIR}/test-live-table.c
  ${CLP_LOOP_DIR}/live_table.c)
target_link_libraries(test-live-table PRIVATE m)
clp_unit_test(test-live-traces SOURCES ${CLP_LOOP_TEST_DIR}/test-live-traces.c
  ${CLP_LOOP_DIR}/live_traces.c USES clp_core)
