# What cmake --install gives: the programs, and for C++ services the libraries with the headers of
# docs/embedding.md: find_package(lockstep), then link lockstep::publisher, lockstep::runner, lockstep::idempotency or lockstep::sagas. Tested by
# tests/integration/embedding_test.sh.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# lockstep_public(<room> <header> ...): headers of a room that others may include.
function(lockstep_public room)
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/)
  get_target_property(type lockstep_${room} TYPE)
  if(type STREQUAL "INTERFACE_LIBRARY")
    set(scope INTERFACE)
  else()
    set(scope PUBLIC)
  endif()
  target_sources(lockstep_${room} ${scope} FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARGN})
endfunction()
lockstep_public(publisher_outbox publisher/outbox/enqueue.h publisher/outbox/enqueue_pqxx.h)
lockstep_public(publisher_dispatch publisher/dispatch/dispatcher.h publisher/dispatch/in_process_bus.h
                publisher/dispatch/route.h)
lockstep_public(publisher_options publisher/options/options.h)
lockstep_public(publisher publisher/service/publisher.h)
lockstep_public(runner runner/service/runner.h)
lockstep_public(projections_model projections/model/projection.h projections/model/call.h)
lockstep_public(envelope envelope/event.h)
lockstep_public(state_positions state/positions/offset_provider.h)
lockstep_public(postgres postgres/connection.h)
lockstep_public(idempotency idempotency/store.h idempotency/postgres_store.h idempotency/memory_store.h
                idempotency/counting_store.h idempotency/store_pqxx.h)
lockstep_public(sagas sagas/orchestrator/orchestrator.h sagas/orchestrator/options.h)
lockstep_public(sagas_engine sagas/engine/call.h)
lockstep_public(sagas_store sagas/store/desk.h)
lockstep_public(sagas_definition sagas/definition/definition.h)
# What those include.
lockstep_public(sagas_engine sagas/engine/options.h)
lockstep_public(sagas_store sagas/store/saga_record.h)
lockstep_public(idempotency idempotency/store_sql.h)
lockstep_public(publisher_outbox publisher/outbox/outbox_row.h)
lockstep_public(envelope envelope/attributes.h)
lockstep_public(envelope_http envelope/http/endpoint_options.h)
lockstep_public(platform_http_client platform/http_client/settings.h)
lockstep_public(postgres postgres/identifier.h postgres/params.h postgres/result.h)
lockstep_public(platform platform/clock.h platform/metrics.h platform/retry_policy.h platform/status.h
                platform/strong_id.h)
lockstep_public(platform_daemon platform/daemon/service.h)

# lockstep_rooms(<list> <room>): adds the room and all rooms that it links.
function(lockstep_rooms list room)
  set(rooms ${${list}})
  if(NOT lockstep_${room} IN_LIST rooms)
    list(APPEND rooms lockstep_${room})
    get_target_property(type lockstep_${room} TYPE)
    if(type STREQUAL "INTERFACE_LIBRARY")
      get_target_property(used lockstep_${room} INTERFACE_LINK_LIBRARIES)
    else()
      get_target_property(used lockstep_${room} LINK_LIBRARIES)
    endif()
    foreach(library IN LISTS used)
      if(library MATCHES "^lockstep::(.*)")
        lockstep_rooms(rooms ${CMAKE_MATCH_1})
      endif()
    endforeach()
  endif()
  set(${list} ${rooms} PARENT_SCOPE)
endfunction()
set(installed "")
lockstep_rooms(installed publisher)
lockstep_rooms(installed runner)
lockstep_rooms(installed idempotency)
lockstep_rooms(installed sagas)
foreach(library IN LISTS installed)
  string(REPLACE lockstep_ "" name ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${name})
endforeach()
install(TARGETS ${installed} EXPORT lockstep COMPONENT library
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep)
install(EXPORT lockstep NAMESPACE lockstep:: FILE lockstepTargets.cmake COMPONENT library
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/lockstepConfig.cmake.in
  ${PROJECT_BINARY_DIR}/lockstepConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstepConfig.cmake
              ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
        COMPONENT library DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

# A program is a component: a package of its own (LockstepPackages).
set(programs lockstep-publisher lockstep-runner lockstep-orchestrator lockstepctl lockstep-emulator)
foreach(program IN LISTS programs)
  string(REGEX REPLACE "^lockstep-?" "" component ${program})
  install(TARGETS ${program} COMPONENT ${component} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endforeach()

# Everything that is installed, without the rest of the project.
add_custom_target(lockstep_installable DEPENDS ${installed} ${programs})
