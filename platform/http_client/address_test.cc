#include "platform/http_client/address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>

namespace lockstep::http {
namespace {

bool IsPublic(const char* text) {
  sockaddr_storage storage{};
  auto& address = reinterpret_cast<sockaddr&>(storage);
  auto& in = reinterpret_cast<sockaddr_in&>(storage);
  auto& in6 = reinterpret_cast<sockaddr_in6&>(storage);
  if (std::strchr(text, ':') == nullptr) {
    in.sin_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, text, &in.sin_addr), 1) << text;
  } else {
    in6.sin6_family = AF_INET6;
    EXPECT_EQ(inet_pton(AF_INET6, text, &in6.sin6_addr), 1) << text;
  }
  return IsPublicAddress(address);
}

TEST(Address, OfTheInternetIsPublic) {
  for (const char* text : {"8.8.8.8", "172.15.255.255", "172.32.0.1", "100.63.255.255",
                           "100.128.0.0", "192.167.1.1", "2606:4700::1111", "2001:4860:4860::8888",
                           "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"}) {
    EXPECT_TRUE(IsPublic(text)) << text;
  }
}

TEST(Address, OfThisMachineOrAPrivateNetworkIsNot) {
  for (const char* text : {"0.0.0.0",
                           "0.1.2.3",
                           "10.0.0.1",
                           "100.64.0.1",
                           "100.127.255.255",
                           "127.0.0.1",
                           "127.255.255.255",
                           "169.254.169.254",
                           "172.16.0.1",
                           "172.31.255.255",
                           "192.0.0.8",
                           "192.0.2.1",
                           "192.168.0.1",
                           "198.18.0.1",
                           "198.19.255.255",
                           "198.51.100.1",
                           "203.0.113.1",
                           "224.0.0.1",
                           "239.1.1.1",
                           "240.0.0.1",
                           "255.255.255.255",
                           "::",
                           "::1",
                           "fc00::1",
                           "fdff::1",
                           "fe80::1",
                           "fec0::1",
                           "ff02::1",
                           "2001:db8::1",
                           "2001::1",
                           "100::1",
                           "4000::1"}) {
    EXPECT_FALSE(IsPublic(text)) << text;
  }
}

TEST(Address, InsideAnIPv6AddressCountsAsItself) {
  for (const char* text :
       {"::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::127.0.0.1",
        "64:ff9b::10.0.0.1", "64:ff9b:1::8.8.8.8",
        "2002:7f00:1::", "2002:a00:1::", "2002:c0a8:101::1", "::ffff:0:127.0.0.1"}) {
    EXPECT_FALSE(IsPublic(text)) << text;
  }
}

}  // namespace
}  // namespace lockstep::http
