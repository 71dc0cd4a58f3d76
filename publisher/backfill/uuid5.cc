#include "publisher/backfill/uuid5.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>

namespace lockstep::publisher {
namespace {

using Digest = std::array<uint32_t, 5>;

void Sha1Block(Digest& digest, const unsigned char* block) {
  std::array<uint32_t, 80> words;
  for (int i = 0; i < 16; ++i) {
    words[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 |
               uint32_t{block[4 * i + 2]} << 8 | uint32_t{block[4 * i + 3]};
  }
  for (int i = 16; i < 80; ++i) {
    words[i] = std::rotl(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
  }
  auto [a, b, c, d, e] = digest;
  const auto rounds = [&, &a = a, &b = b, &c = c, &d = d, &e = e](int first, const auto& mix) {
    for (int i = first; i < first + 20; ++i) {
      const uint32_t next = std::rotl(a, 5) + mix(b, c, d) + e + words[i];
      e = d;
      d = c;
      c = std::rotl(b, 30);
      b = a;
      a = next;
    }
  };
  using Word = uint32_t;
  rounds(0, [](Word x, Word y, Word z) { return ((x & y) | (~x & z)) + 0x5A827999; });
  rounds(20, [](Word x, Word y, Word z) { return (x ^ y ^ z) + 0x6ED9EBA1; });
  rounds(40, [](Word x, Word y, Word z) { return ((x & y) | (x & z) | (y & z)) + 0x8F1BBCDC; });
  rounds(60, [](Word x, Word y, Word z) { return (x ^ y ^ z) + 0xCA62C1D6; });
  digest = {digest[0] + a, digest[1] + b, digest[2] + c, digest[3] + d, digest[4] + e};
}

// SHA-1, which the version asks for; nothing here rests on its strength.
Digest Sha1(std::string text) {
  const uint64_t bits = uint64_t{text.size()} * 8;
  text += '\x80';
  text.append((120 - text.size() % 64) % 64, '\0');
  for (int shift = 56; shift >= 0; shift -= 8) text += static_cast<char>(bits >> shift);
  Digest digest = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};
  for (size_t at = 0; at < text.size(); at += 64) {
    Sha1Block(digest, reinterpret_cast<const unsigned char*>(text.data()) + at);
  }
  return digest;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return (c | 0x20) - 'a' + 10;
}

}  // namespace

std::string Uuid5(std::string_view space, std::string_view name) {
  std::string text;
  for (size_t i = 0; i + 1 < space.size();) {
    if (space[i] == '-') {
      ++i;
      continue;
    }
    text += static_cast<char>(HexDigit(space[i]) << 4 | HexDigit(space[i + 1]));
    i += 2;
  }
  text += name;
  const Digest digest = Sha1(std::move(text));
  const uint32_t time = (digest[1] & 0xFFFF0FFF) | 0x5000;
  const uint32_t clock = (digest[2] & 0x3FFFFFFF) | 0x80000000;
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:04x}{:08x}", digest[0], time >> 16,
                     time & 0xFFFF, clock >> 16, clock & 0xFFFF, digest[3]);
}

}  // namespace lockstep::publisher
