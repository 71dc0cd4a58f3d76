include(GoogleTest)

# lockstep_library(<room> [GRPC] [APART] SOURCES ... [DEPS ...] [PRIVATE_DEPS ...]): the library of one room,
# with the alias lockstep::<room>. GRPC: its sources include gRPC's headers. APART: they are never joined
# (LOCKSTEP_UNITY), for their names clash. A room without sources (headers only, or a name for several rooms)
# is an interface. scripts/check-layers says which room may use which.
function(lockstep_library name)
  cmake_parse_arguments(arg "GRPC;APART" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  if(NOT arg_SOURCES)
    add_library(lockstep_${name} INTERFACE)
    add_library(lockstep::${name} ALIAS lockstep_${name})
    target_include_directories(lockstep_${name} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
    target_link_libraries(lockstep_${name} INTERFACE ${arg_DEPS})
    return()
  endif()
  add_library(lockstep_${name} STATIC ${arg_SOURCES})
  add_library(lockstep::${name} ALIAS lockstep_${name})
  target_include_directories(lockstep_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_link_libraries(lockstep_${name} PUBLIC ${arg_DEPS}
                        PRIVATE ${arg_PRIVATE_DEPS} $<BUILD_INTERFACE:lockstep_warnings>)
  if(NOT arg_APART)
    lockstep_join(lockstep_${name})
  endif()
  if(arg_GRPC)
    lockstep_precompile(lockstep_${name} GRPC)
  else()
    lockstep_precompile(lockstep_${name})
  endif()
endfunction()

# lockstep_join(<target>): with LOCKSTEP_UNITY its sources are compiled several at a time, for reading their
# headers is most of the work. Names in anonymous namespaces must then differ within a target.
function(lockstep_join target)
  if(LOCKSTEP_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    # g++ takes a source that is included for a header, whose anonymous names others would see.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# Headers that most sources read, compiled once and shared: one set for the rooms and one for the tests
# (programs are compiled with -fPIE, so they can't share the rooms'), each also with gRPC.
set(LOCKSTEP_COMMON_HEADERS
    <algorithm> <atomic> <chrono> <condition_variable> <cstdint> <deque> <functional> <map> <memory> <mutex>
    <optional> <span> <string> <string_view> <thread> <unordered_map> <utility> <vector>
    <fmt/chrono.h> <fmt/format.h> <fmt/ranges.h> <absl/status/status.h> <absl/status/statusor.h>)
set(LOCKSTEP_TEST_HEADERS <gmock/gmock.h> <gtest/gtest.h>)
set(LOCKSTEP_GRPC_HEADERS <grpcpp/grpcpp.h> <google/pubsub/v1/pubsub.grpc.pb.h>)

# lockstep_precompile(<target> [GRPC] [ROOMS]): the target's sources read the shared headers precompiled; with
# ROOMS those of the rooms, although it is a program. REQUIRES: with GRPC, that the target links
# lockstep::pubsub_proto.
function(lockstep_precompile target)
  cmake_parse_arguments(arg "GRPC;ROOMS" "" "" ${ARGN})
  if(NOT LOCKSTEP_PCH)
    return()
  endif()
  get_target_property(type ${target} TYPE)
  if(arg_ROOMS)
    set(type STATIC_LIBRARY)
  endif()
  set(owner lockstep_pch)
  set(headers ${LOCKSTEP_COMMON_HEADERS})
  set(libraries fmt::fmt absl::status absl::statusor)
  if(type STREQUAL "EXECUTABLE")
    string(APPEND owner _test)
    list(APPEND headers ${LOCKSTEP_TEST_HEADERS})
    list(APPEND libraries GTest::gmock GTest::gtest)
  endif()
  if(arg_GRPC)
    string(APPEND owner _grpc)
    list(APPEND headers ${LOCKSTEP_GRPC_HEADERS})
    list(APPEND libraries lockstep::pubsub_proto)
  endif()
  if(NOT TARGET ${owner})
    set(empty ${PROJECT_BINARY_DIR}/${owner}.cc)
    file(GENERATE OUTPUT ${empty} CONTENT "int main() {}\n")
    if(type STREQUAL "EXECUTABLE")
      add_executable(${owner} EXCLUDE_FROM_ALL ${empty})
    else()
      add_library(${owner} STATIC EXCLUDE_FROM_ALL ${empty})
    endif()
    target_link_libraries(${owner} PRIVATE ${libraries} lockstep_warnings)
    target_precompile_headers(${owner} PRIVATE ${headers})
    target_compile_options(${owner} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
  # What ccache needs to see through a precompiled header.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endfunction()

function(lockstep_binary name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} lockstep_warnings)
  lockstep_join(${name})
  # Compiled as the rooms are, so that it can share their precompiled headers.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIC)
  target_link_options(${name} PRIVATE -pie)
  lockstep_precompile(${name} ROOMS)
endfunction()

# lockstep_test(<name> [GRPC] [APART] SOURCES ... DEPS ... [LABELS ...] [TIMEOUT s]): a GoogleTest program;
# every case is a ctest test of its own, so that ctest -j runs them in parallel. UNREGISTERED leaves the
# registration to the caller. GRPC, APART: as of lockstep_library.
function(lockstep_test name)
  cmake_parse_arguments(arg "GRPC;APART;UNREGISTERED" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * ${LOCKSTEP_PATIENCE}")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} lockstep::test_support GTest::gmock GTest::gtest
                        lockstep_warnings)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(NOT arg_APART)
    lockstep_join(${name})
  endif()
  if(arg_GRPC)
    lockstep_precompile(${name} GRPC)
  else()
    lockstep_precompile(${name})
  endif()
  if(arg_UNREGISTERED)
    return()
  endif()
  gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST
                       NO_PRETTY_VALUES
                       PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
endfunction()
