# What a C++ service needs to run a publisher in its own process: find_package(lockstep), then link
# lockstep::publisher. Tested by tests/integration/embedding_test.sh.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(installed "")
foreach(name platform platform_config platform_log platform_daemon envelope postgres sql outbox_sql
        state_sql pubsub pubsub_port pubsub_grpc pubsub_proto web page_files publisher publisher_outbox
        publisher_dispatch publisher_options publisher_relay publisher_observe publisher_upkeep)
  if(TARGET lockstep_${name})
    set_target_properties(lockstep_${name} PROPERTIES EXPORT_NAME ${name})
    list(APPEND installed lockstep_${name})
  endif()
endforeach()
install(TARGETS ${installed} EXPORT lockstep COMPONENT library
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT lockstep NAMESPACE lockstep:: FILE lockstepTargets.cmake COMPONENT library
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
foreach(folder platform envelope postgres sql pubsub publisher web)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} COMPONENT library
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep FILES_MATCHING PATTERN "*.h"
          PATTERN grpc EXCLUDE PATTERN google_cloud EXCLUDE PATTERN testing EXCLUDE
          PATTERN assets EXCLUDE)
endforeach()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/lockstepConfig.cmake.in
  ${PROJECT_BINARY_DIR}/lockstepConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstepConfig.cmake
              ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
        COMPONENT library DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

# Everything of the component, without the rest of the project.
add_custom_target(lockstep_installable DEPENDS ${installed})
