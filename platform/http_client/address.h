#pragma once

#include <sys/socket.h>

#include <string>

namespace lockstep::http {

// Whether an address belongs to the open Internet. All else is what a request must not reach unless
// somebody allowed it: this machine, private and link-local networks (where clouds answer with
// credentials), shared (CGNAT), multicast, documentation and reserved ranges; and those of them
// that are written inside an IPv6 address (mapped, compatible, NAT64, 6to4, Teredo). Pure.
bool IsPublicAddress(const sockaddr& address);

// "127.0.0.1", "::1"; empty when it is neither IPv4 nor IPv6.
std::string AddressText(const sockaddr& address);

}  // namespace lockstep::http
