#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep::publisher {

// Where a topic's events go: one route or several, as they are written (docs/routes.md).
struct Routes : std::vector<std::string> {
  using std::vector<std::string>::vector;
  Routes(const char* one) : vector({one}) {}         // NOLINT(google-explicit-constructor)
  Routes(const std::string& one) : vector({one}) {}  // NOLINT(google-explicit-constructor)
  Routes(std::vector<std::string> all) : vector(std::move(all)) {}  // NOLINT
};
using Topics = std::map<std::string, Routes>;  // by logical topic

// One of them, understood.
struct Route {
  enum class Kind { kBus, kHttp, kCustom };

  Kind kind = Kind::kBus;
  std::string target;  // a topic of the bus, a URL, or the name of a dispatcher
  // What it is called where rows, metrics and pages name it: bus:…, custom:…, or the URL, with a
  // number in place of its query, which may hold a secret.
  std::string name;
};

// `bus:<topic>` (a bare name means that), http://… or https://…, `custom:<name>`. Or a sentence.
absl::StatusOr<Route> ParseRoute(std::string_view text);

// The routes of a topic: at least one, none twice, at most one to the bus.
absl::StatusOr<std::vector<Route>> ParseRoutes(const Routes& routes);

// Of each topic that goes to the bus, its topic there. REQUIRES: all of them can be parsed.
std::map<std::string, std::string> BusTopics(const Topics& topics);

}  // namespace lockstep::publisher
