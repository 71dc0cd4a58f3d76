#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <random>
#include <string>

namespace lockstep::publisher {

// A random UUID: whoever writes under it shows that the lease is his.
inline std::string NewLeaseToken() {
  thread_local std::mt19937_64 engine(std::random_device{}());
  const uint64_t high = engine();
  const uint64_t low = engine();
  return fmt::format("{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}", high >> 32, (high >> 16) & 0xffff,
                     high & 0xfff, 0x8000 | ((low >> 48) & 0x3fff), low & 0xffffffffffff);
}

}  // namespace lockstep::publisher
