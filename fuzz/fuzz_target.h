#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

// A fuzz target takes any bytes and must come back: no crash, no hang, no undefined behaviour, and
// what it checks with LOCKSTEP_HOLDS holds.
//
//   LOCKSTEP_FUZZ_TARGET(filter) { Filter::Parse(input); }
//
// The build `fuzz` makes a libFuzzer program of each (scripts/fuzz); the ordinary build links all
// of them into fuzz_test, which runs the committed corpora through them.
namespace lockstep::fuzz {

using Target = void (*)(std::string_view input);

inline std::map<std::string, Target>& Targets() {
  static std::map<std::string, Target> targets;
  return targets;
}

inline bool Register(const char* name, Target target) {
  Targets()[name] = target;
  return true;
}

[[noreturn]] inline void Broken(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
  std::abort();
}

}  // namespace lockstep::fuzz

#define LOCKSTEP_HOLDS(what) \
  ((what) ? static_cast<void>(0) : lockstep::fuzz::Broken(#what, __FILE__, __LINE__))

#ifdef LOCKSTEP_FUZZER
#define LOCKSTEP_FUZZ_TARGET(name)                                            \
  static void Fuzz_##name(std::string_view input);                            \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {   \
    Fuzz_##name(std::string_view(reinterpret_cast<const char*>(data), size)); \
    return 0;                                                                 \
  }                                                                           \
  static void Fuzz_##name(std::string_view input)
#else
#define LOCKSTEP_FUZZ_TARGET(name)                        \
  static void Fuzz_##name(std::string_view input);        \
  [[maybe_unused]] static const bool kRegistered_##name = \
      lockstep::fuzz::Register(#name, Fuzz_##name);       \
  static void Fuzz_##name(std::string_view input)
#endif
