#include "publisher/dispatch/route.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "platform/http_client/url.h"
#include "platform/shown_address.h"
#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::publisher {
namespace {

constexpr std::string_view kBus = "bus:";
constexpr std::string_view kCustom = "custom:";
constexpr size_t kMostRoutes = 16;

bool IsName(std::string_view text) {
  return !text.empty() && text.size() < 128 && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
  });
}

}  // namespace

absl::StatusOr<Route> ParseRoute(std::string_view text) {
  text = Trim(text);
  if (text.starts_with("http:") || text.starts_with("https:")) {
    ASSIGN_OR_RETURN(const http::Url url, http::ParseUrl(text));
    return Route{Route::Kind::kHttp, url.text, ShownAddresses(url.text)};
  }
  if (text.starts_with(kCustom)) {
    const std::string_view name = text.substr(kCustom.size());
    if (!IsName(name)) {
      return InvalidArgument("'{}' names no dispatcher: write custom:<name> in a-z, 0-9, . - _",
                             text);
    }
    return Route{Route::Kind::kCustom, std::string(name), std::string(text)};
  }
  const std::string_view topic = text.starts_with(kBus) ? text.substr(kBus.size()) : text;
  // Pub/Sub's names have no colon, and slashes only as a whole: projects/….
  const bool path = topic.find('/') != std::string_view::npos && !topic.starts_with("projects/");
  if (topic.empty() || path || topic.find_first_of(": \t") != std::string_view::npos) {
    return InvalidArgument(
        "'{}' is no route: write a Pub/Sub topic (or bus:<topic>), http://…, https://… or "
        "custom:<name>",
        text);
  }
  return Route{Route::Kind::kBus, std::string(topic), fmt::format("{}{}", kBus, topic)};
}

absl::StatusOr<std::vector<Route>> ParseRoutes(const Routes& routes) {
  if (routes.empty()) return InvalidArgument("it has no route");
  if (routes.size() > kMostRoutes)
    return InvalidArgument("it has more than {} routes", kMostRoutes);
  std::vector<Route> parsed;
  std::set<std::string> names;
  int buses = 0;
  for (const std::string& text : routes) {
    ASSIGN_OR_RETURN(Route route, ParseRoute(text));
    if (!names.insert(route.name).second)
      return InvalidArgument("the route {} stands twice", route.name);
    buses += route.kind == Route::Kind::kBus ? 1 : 0;
    parsed.push_back(std::move(route));
  }
  if (buses > 1) {
    return InvalidArgument(
        "it goes to the bus twice: one topic there will do, each consumer has a subscription of "
        "its own");
  }
  return parsed;
}

std::map<std::string, std::string> BusTopics(const Topics& topics) {
  std::map<std::string, std::string> targets;
  for (const auto& [logical, routes] : topics) {
    for (const std::string& text : routes) {
      const auto route = ParseRoute(text);
      if (route.ok() && route->kind == Route::Kind::kBus) targets[logical] = route->target;
    }
  }
  return targets;
}

}  // namespace lockstep::publisher
