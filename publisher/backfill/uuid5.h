#pragma once

#include <string>
#include <string_view>

namespace lockstep::publisher {

// The UUID of RFC 4122, version 5: the same for the same namespace and name. REQUIRES: `space` is a
// UUID.
std::string Uuid5(std::string_view space, std::string_view name);

}  // namespace lockstep::publisher
