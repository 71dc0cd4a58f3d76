#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace lockstep::http {

// An address that we may send to: made by ParseUrl alone.
struct Url {
  std::string text;    // as libcurl is told it, and as it is shown
  std::string scheme;  // http or https
  std::string host;    // as written, without the brackets of IPv6; 0x7f.1 is 127.0.0.1
  int port = 0;
  std::string origin;  // whom connections go to: "https://example.com:443"
};

// Takes http and https with a host and nothing that hides where it leads or that does not belong
// on the wire: no user:password@, no fragment, no blanks, no control or non-ASCII characters. Else
// a sentence that says what is wrong and what to write instead.
absl::StatusOr<Url> ParseUrl(std::string_view text);

}  // namespace lockstep::http
