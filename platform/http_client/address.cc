#include "platform/http_client/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

namespace lockstep::http {
namespace {

struct Range4 {
  uint32_t base;
  int bits;
};

constexpr uint32_t Quad(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return a << 24U | b << 16U | c << 8U | d;
}

// IANA's special-purpose registry, without what is globally reachable.
constexpr std::array kNotPublic4 = std::to_array<Range4>({
    {Quad(0, 0, 0, 0), 8},        // this host
    {Quad(10, 0, 0, 0), 8},       // private
    {Quad(100, 64, 0, 0), 10},    // shared (CGNAT)
    {Quad(127, 0, 0, 0), 8},      // loopback
    {Quad(169, 254, 0, 0), 16},   // link-local: metadata servers
    {Quad(172, 16, 0, 0), 12},    // private
    {Quad(192, 0, 0, 0), 24},     // protocol assignments
    {Quad(192, 0, 2, 0), 24},     // documentation
    {Quad(192, 88, 99, 0), 24},   // 6to4 relays
    {Quad(192, 168, 0, 0), 16},   // private
    {Quad(198, 18, 0, 0), 15},    // benchmarks
    {Quad(198, 51, 100, 0), 24},  // documentation
    {Quad(203, 0, 113, 0), 24},   // documentation
    {Quad(224, 0, 0, 0), 4},      // multicast
    {Quad(240, 0, 0, 0), 4},      // reserved, broadcast
});

bool IsPublic4(uint32_t address) {
  return std::ranges::none_of(kNotPublic4, [&](const Range4& range) {
    return ((address ^ range.base) >> (32 - range.bits)) == 0;
  });
}

using Bytes = std::span<const uint8_t, 16>;

uint32_t QuadAt(Bytes bytes, size_t at) {
  return Quad(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
}

bool Starts(Bytes bytes, std::initializer_list<uint8_t> with) {
  return std::equal(with.begin(), with.end(), bytes.begin());
}

bool IsPublic6(Bytes bytes) {
  if (Starts(bytes, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0})) {
    // ::, ::1, ::a.b.c.d (compatible, never routed), ::ffff:a.b.c.d (mapped)
    return bytes[10] == 0xFF && bytes[11] == 0xFF && IsPublic4(QuadAt(bytes, 12));
  }
  if (Starts(bytes, {0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF})) return false;  // translated, RFC 2765
  // NAT64: 64:ff9b::/96; its other prefix (64:ff9b:1::/48) is for local use.
  if (Starts(bytes, {0x00, 0x64, 0xFF, 0x9B})) {
    return Starts(bytes, {0x00, 0x64, 0xFF, 0x9B, 0, 0, 0, 0, 0, 0, 0, 0}) &&
           IsPublic4(QuadAt(bytes, 12));
  }
  if (Starts(bytes, {0x20, 0x02})) return IsPublic4(QuadAt(bytes, 2));  // 6to4
  if (Starts(bytes, {0x20, 0x01}) && bytes[2] < 2) return false;  // 2001::/23: Teredo, ORCHID, …
  if (Starts(bytes, {0x20, 0x01, 0x0D, 0xB8})) return false;      // documentation
  if (Starts(bytes, {0x3F, 0xFF}) && bytes[2] < 0x10) return false;  // documentation
  return (bytes[0] & 0xE0U) ==
         0x20;  // global unicast is 2000::/3; fc00::/7, fe80::/10, ff00::/8 not
}

}  // namespace

bool IsPublicAddress(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof(in));
    return IsPublic4(ntohl(in.sin_addr.s_addr));
  }
  if (address.sa_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &address, sizeof(in));
    return IsPublic6(in.sin6_addr.s6_addr);
  }
  return false;
}

std::string AddressText(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* from = nullptr;
  sockaddr_in in{};
  sockaddr_in6 in6{};
  if (address.sa_family == AF_INET) {
    std::memcpy(&in, &address, sizeof(in));
    from = &in.sin_addr;
  } else if (address.sa_family == AF_INET6) {
    std::memcpy(&in6, &address, sizeof(in6));
    from = &in6.sin6_addr;
  }
  if (from == nullptr) return "";
  const char* shown = inet_ntop(address.sa_family, from, text.data(), text.size());
  return shown == nullptr ? "" : shown;
}

}  // namespace lockstep::http
