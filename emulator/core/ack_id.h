#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::emulator {

// What an ack id says: which lease of which message of which subscription. To clients it is opaque
// text of a fixed length.
struct AckId {
  uint32_t subscription = 0;  // a number that no other subscription of this process has
  uint64_t sequence = 0;
  uint64_t lease = 0;
  uint32_t copy = 0;  // 0, or more for a duplicate made by fault injection

  static constexpr size_t kLength = 48;

  // Writes kLength characters.
  void Write(char* out) const;
  std::string Text() const;
  // Nothing if the text was never an ack id of ours.
  static std::optional<AckId> Parse(std::string_view text);
};

}  // namespace lockstep::emulator
