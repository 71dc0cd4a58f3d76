#include "platform/http_client/url.h"

#include <curl/curl.h>

#include <algorithm>
#include <memory>

#include "platform/printable.h"
#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::http {
namespace {

constexpr size_t kLongestUrl = 2'048;

std::string PartOf(CURLU* url, CURLUPart part, unsigned int flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK || text == nullptr) return "";
  std::string answer(text);
  curl_free(text);
  return answer;
}

// What may be told of an address that was refused: a password in it is nobody's to read, nor is its
// query.
std::string Shown(std::string_view address) {
  const size_t query = address.find('?');
  const std::string text =
      std::string(address.substr(0, query)) + (query == std::string_view::npos ? "" : "?…");
  const size_t at = text.rfind('@');
  const size_t scheme = text.find("://");
  if (at == std::string::npos || scheme == std::string::npos || at < scheme) {
    return Printable(Truncate(text, 200));
  }
  return Printable(Truncate(text.substr(0, scheme + 3) + "…" + text.substr(at), 200));
}

}  // namespace

absl::StatusOr<Url> ParseUrl(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return InvalidArgument("{} is no address to send to: {}", Shown(text), why);
  };
  if (text.empty()) return InvalidArgument("an empty text is no address: write https://host/path");
  if (text.size() > kLongestUrl) return refuse("it has more than 2048 characters");
  if (!std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7F && c != '\\'; })) {
    return refuse(
        "it has blanks, control or non-ASCII characters; write them as %20, and names as xn--…");
  }
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> url(curl_url(), curl_url_cleanup);
  if (const CURLUcode parsed = curl_url_set(url.get(), CURLUPART_URL, std::string(text).c_str(), 0);
      parsed != CURLUE_OK) {
    return refuse(fmt::format("{}; write https://host/path", curl_url_strerror(parsed)));
  }
  Url answer;
  answer.scheme = PartOf(url.get(), CURLUPART_SCHEME);
  if (answer.scheme != "http" && answer.scheme != "https") {
    return refuse("only http:// and https:// are spoken");
  }
  // libcurl takes one slash to three for two.
  const std::string_view rest = text.substr(answer.scheme.size());
  if (!rest.starts_with("://") || rest.substr(3, 1) == "/") {
    return refuse("write it as https://host/path");
  }
  if (!PartOf(url.get(), CURLUPART_USER).empty() ||
      !PartOf(url.get(), CURLUPART_PASSWORD).empty() ||
      text.substr(0, text.find_first_of("/?", answer.scheme.size() + 3)).find('@') !=
          std::string_view::npos) {
    return refuse("it has a user or password; put an Authorization header into headers_file");
  }
  if (text.find('#') != std::string_view::npos) {
    return refuse("a fragment (#…) is never sent; leave it out");
  }
  answer.host = PartOf(url.get(), CURLUPART_HOST);
  if (answer.host.size() > 2 && answer.host.front() == '[') {
    answer.host = answer.host.substr(1, answer.host.size() - 2);
  }
  if (answer.host.empty()) return refuse("it names no host");
  if (!ParseWhole(PartOf(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT), &answer.port) ||
      answer.port < 1 || answer.port > 65'535) {
    return refuse("its port is none");
  }
  const bool v6 = answer.host.find(':') != std::string::npos;
  answer.origin = fmt::format("{}://{}{}{}:{}", answer.scheme, v6 ? "[" : "", answer.host,
                              v6 ? "]" : "", answer.port);
  answer.text = PartOf(url.get(), CURLUPART_URL);
  return answer;
}

}  // namespace lockstep::http
