set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

option(LOCKSTEP_WERROR "Treat warnings as errors (CI does)" OFF)
option(LOCKSTEP_PCH "Precompile the heavy headers of gRPC, protobuf and libpqxx" ON)
option(LOCKSTEP_UNITY "Compile several sources at a time, generated ones unoptimised: all of it sooner, one change later" OFF)
set(LOCKSTEP_SANITIZE "" CACHE STRING "Sanitizers, as given to -fsanitize=")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness is what ccache asks for with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${CCACHE_PROGRAM})
endif()

# Written by hand for our own code only: generated code is compiled without warnings.
add_library(lockstep_warnings INTERFACE)
target_compile_options(lockstep_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow=local
                                                   -Wnon-virtual-dtor -Woverloaded-virtual
                                                   # Designated initializers leave the rest at its default on purpose.
                                                   -Wno-missing-field-initializers)
if(LOCKSTEP_WERROR)
  target_compile_options(lockstep_warnings INTERFACE -Werror)
endif()

option(LOCKSTEP_REPRODUCIBLE "Name no folder of this machine in what is built, so that it is the same from any (preset package)" OFF)
if(LOCKSTEP_REPRODUCIBLE)
  add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.)
endif()

# How many times longer a test may take.
set(LOCKSTEP_PATIENCE 1)
if(LOCKSTEP_SANITIZE STREQUAL "thread")
  set(LOCKSTEP_PATIENCE 5)
endif()
if(LOCKSTEP_SANITIZE)
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
  if(LOCKSTEP_SANITIZE STREQUAL "thread")
    # With this macro protobuf's maps have members that they have not in Debian's library, and what
    # the two share crashes. The standard library needs to know all the same.
    add_compile_options(-U__SANITIZE_THREAD__ -D_GLIBCXX_TSAN=1)
  endif()
endif()

# A fault of memory shall end the process, and serve nobody (tests/security/hardening_test.sh looks at the programs).
# Everywhere, for precompiled headers are shared. Sanitizers check more than _FORTIFY_SOURCE does, and miss what it replaces.
add_compile_options(-fstack-protector-strong)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  add_compile_options(-fcf-protection)
endif()
if(NOT LOCKSTEP_SANITIZE AND NOT LOCKSTEP_FUZZ)
  add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)  # it needs -O, which every preset has
endif()
add_link_options(LINKER:-z,relro,-z,now)

find_package(Threads REQUIRED)
# Everywhere: a precompiled header is read only where the same macros are defined.
add_compile_options(-pthread)
