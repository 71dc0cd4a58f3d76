#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// What the HTTP server reads of a request.
struct HttpHead {
  std::string method;
  std::string path;
  std::map<std::string, std::string> query;
  std::string host;  // as the client calls us, with the port; empty = it does not say
};

// `text`: the lines before the empty one. Nothing when that is no request.
std::optional<HttpHead> ParseHttpHead(std::string_view text);

// Whether `host` is an IP address, localhost, or one of `names`. A browser says there which name it
// was sent to: a page of somebody else, whose name was turned to our address, can't say any of
// ours.
bool HostIsServed(std::string_view host, const std::vector<std::string>& names);

}  // namespace lockstep
