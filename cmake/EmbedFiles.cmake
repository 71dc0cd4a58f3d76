# Run by lockstep_embed at build time: writes HEADER and OUT from FILES (relative to DIR).
file(WRITE ${HEADER} "#pragma once
#include <string_view>
#include <vector>

namespace ${NAMESPACE} {
struct EmbeddedFile {
  std::string_view name;
  std::string_view text;
};
// In the order in which CMake names them.
const std::vector<EmbeddedFile>& Files();
}  // namespace ${NAMESPACE}
")
set(entries "")
set(index 0)
set(bodies "")
foreach(file IN LISTS FILES)
  file(READ ${DIR}/${file} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" text "${hex}")
  # Short literals, side by side: compilers limit the length of one.
  string(REGEX REPLACE "((\\\\x[0-9a-f][0-9a-f])(\\\\x[0-9a-f][0-9a-f])?(\\\\x[0-9a-f][0-9a-f])?(\\\\x[0-9a-f][0-9a-f])?(\\\\x[0-9a-f][0-9a-f])?(\\\\x[0-9a-f][0-9a-f])?(\\\\x[0-9a-f][0-9a-f])?(\\\\x[0-9a-f][0-9a-f])?)" "\"\\1\"\n" text "${text}")
  string(LENGTH "${hex}" length)
  math(EXPR length "${length} / 2")
  string(APPEND bodies "const char kFile${index}[] =\n\"\" ${text};\n")
  string(APPEND entries "      {\"${file}\", {kFile${index}, ${length}}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUT} "#include \"${NAME}.h\"

namespace ${NAMESPACE} {
namespace {
${bodies}
}  // namespace
const std::vector<EmbeddedFile>& Files() {
  static const std::vector<EmbeddedFile> files = {
${entries}  };
  return files;
}
}  // namespace ${NAMESPACE}
")
