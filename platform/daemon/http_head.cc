#include "platform/daemon/http_head.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "platform/text.h"

namespace lockstep {
namespace {

std::string UrlDecoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      decoded += static_cast<char>(byte);
      i += 2;
    } else {
      decoded += text[i] == '+' ? ' ' : text[i];
    }
  }
  return decoded;
}

std::map<std::string, std::string> ParseQuery(std::string_view text) {
  std::map<std::string, std::string> query;
  for (const std::string& pair : SplitList(text, '&')) {
    const size_t equals = std::min(pair.find('='), pair.size());
    query[pair.substr(0, equals)] =
        UrlDecoded(std::string_view(pair).substr(std::min(equals + 1, pair.size())));
  }
  return query;
}

// "name:80" -> "name", "[::1]:80" -> "::1"
std::string_view WithoutPort(std::string_view host) {
  if (host.starts_with('[')) return host.substr(1, std::min(host.find(']'), host.size()) - 1);
  return host.substr(0, host.find(':'));
}

bool IsAddress(const std::string& host) {
  unsigned char ignored[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), ignored) == 1 ||
         inet_pton(AF_INET6, host.c_str(), ignored) == 1;
}

}  // namespace

std::optional<HttpHead> ParseHttpHead(std::string_view text) {
  HttpHead head;
  const size_t line_end = std::min(text.find('\n'), text.size());
  const std::vector<std::string> words = SplitList(Trim(text.substr(0, line_end)), ' ');
  if (words.size() != 3 || !words[2].starts_with("HTTP/1.")) return std::nullopt;
  head.method = words[0];
  const size_t mark = std::min(words[1].find('?'), words[1].size());
  head.path = words[1].substr(0, mark);
  head.query = ParseQuery(std::string_view(words[1]).substr(std::min(mark + 1, words[1].size())));
  for (const std::string& line : SplitList(text.substr(line_end), '\n')) {
    if (!absl::StartsWithIgnoreCase(line, "host:")) continue;
    if (!head.host.empty()) return std::nullopt;  // which of the two would be meant?
    head.host = Trim(std::string_view(line).substr(5));
  }
  return head;
}

bool HostIsServed(std::string_view host, const std::vector<std::string>& names) {
  std::string name = absl::AsciiStrToLower(std::string(WithoutPort(host)));
  if (name.ends_with('.')) name.pop_back();
  // No browser leaves it out.
  if (name.empty() || name == "localhost" || IsAddress(name)) return true;
  return std::ranges::any_of(
      names, [&](const std::string& served) { return absl::EqualsIgnoreCase(served, name); });
}

}  // namespace lockstep
