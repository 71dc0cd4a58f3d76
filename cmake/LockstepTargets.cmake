include(GoogleTest)

# lockstep_library(<folder> SOURCES ... [DEPS ...] [PRIVATE_DEPS ...]): the library of one folder,
# lockstep_<folder>, with the alias lockstep::<folder>.
function(lockstep_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(lockstep_${name} STATIC ${arg_SOURCES})
  add_library(lockstep::${name} ALIAS lockstep_${name})
  target_include_directories(lockstep_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                     $<INSTALL_INTERFACE:include/lockstep>)
  target_link_libraries(lockstep_${name} PUBLIC ${arg_DEPS}
                        PRIVATE ${arg_PRIVATE_DEPS} $<BUILD_INTERFACE:lockstep_warnings>)
endfunction()

# lockstep_precompile(<target> <header>...): the heavy headers of the target's sources, compiled once.
function(lockstep_precompile target)
  if(LOCKSTEP_PCH)
    target_precompile_headers(${target} PRIVATE ${ARGN})
    # What ccache needs to see through a precompiled header.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  endif()
endfunction()

function(lockstep_binary name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} lockstep_warnings)
endfunction()

# lockstep_test(<name> SOURCES ... DEPS ... [LABELS ...] [TIMEOUT s]): a GoogleTest program; every
# case is a ctest test of its own, so that ctest -j runs them in parallel. UNREGISTERED leaves the
# registration to the caller.
function(lockstep_test name)
  cmake_parse_arguments(arg "UNREGISTERED" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} lockstep::test_support GTest::gmock GTest::gtest
                        lockstep_warnings)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(arg_UNREGISTERED)
    return()
  endif()
  gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST
                       NO_PRETTY_VALUES
                       PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
endfunction()
