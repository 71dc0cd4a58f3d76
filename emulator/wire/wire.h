#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

// The little of protobuf's wire format that the hot paths write by hand, into memory whose size
// was computed before. Field numbers are below 16, so that a tag is one byte.
namespace lockstep::emulator::wire {

inline constexpr int kVarint = 0;
inline constexpr int kBytes = 2;

inline size_t VarintSize(uint64_t value) {
  size_t size = 1;
  for (; value >= 0x80; value >>= 7) ++size;
  return size;
}

inline size_t BytesFieldSize(size_t length) { return 1 + VarintSize(length) + length; }

inline char* PutVarint(uint64_t value, char* out) {
  for (; value >= 0x80; value >>= 7) *out++ = static_cast<char>(value | 0x80);
  *out++ = static_cast<char>(value);
  return out;
}

inline char* PutTag(int field, int type, char* out) {
  *out++ = static_cast<char>(field << 3 | type);
  return out;
}

inline char* PutBytes(int field, std::string_view bytes, char* out) {
  out = PutVarint(bytes.size(), PutTag(field, kBytes, out));
  std::memcpy(out, bytes.data(), bytes.size());
  return out + bytes.size();
}

}  // namespace lockstep::emulator::wire
