#pragma once

#include <string_view>
#ifdef LOCKSTEP_DEFECTS
#include <cstdlib>
#endif

// Deliberate defects, so that the chaos run can be seen to catch them (docs/reliability.md). They
// are in a program only when it is built with the CMake option LOCKSTEP_DEFECTS, which no release
// is; there LOCKSTEP_DEFECT names the one to have.
namespace lockstep::defect {

#ifdef LOCKSTEP_DEFECTS
inline bool On(std::string_view name) {
  static const char* const chosen = std::getenv("LOCKSTEP_DEFECT");
  return chosen != nullptr && name == chosen;
}
#else
constexpr bool On(std::string_view) { return false; }
#endif

}  // namespace lockstep::defect
