# lockstep_embed(<library> NAMESPACE <ns> FILES ...): makes text files part of a binary, as the
# function `const std::vector<EmbeddedFile>& Files()` in <ns>, declared in <library>.h.
function(lockstep_embed library)
  cmake_parse_arguments(arg "" "NAMESPACE" "FILES" ${ARGN})
  set(out ${CMAKE_CURRENT_BINARY_DIR}/${library}.cc)
  set(header ${CMAKE_CURRENT_BINARY_DIR}/include/${library}.h)
  add_custom_command(
    OUTPUT ${out} ${header}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DHEADER=${header} -DNAME=${library}
            -DNAMESPACE=${arg_NAMESPACE} "-DFILES=${arg_FILES}" -DDIR=${CMAKE_CURRENT_SOURCE_DIR}
            -P ${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake
    DEPENDS ${arg_FILES} ${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake
    VERBATIM)
  add_library(lockstep_${library} STATIC ${out} ${header})
  add_library(lockstep::${library} ALIAS lockstep_${library})
  target_include_directories(lockstep_${library} PUBLIC
                             $<BUILD_INTERFACE:${CMAKE_CURRENT_BINARY_DIR}/include>)
endfunction()
