#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "platform/retry_policy.h"

namespace lockstep::sagas {

using Json = nlohmann::ordered_json;

// What a definition may hold, and what a saga may be given (docs/sagas.md).
constexpr int kMaxSteps = 64;
constexpr size_t kMaxDefinitionBytes = 64 << 10;
constexpr size_t kMaxInputBytes = 64 << 10;
constexpr size_t kMaxResultBytes = 16 << 10;
constexpr int kMaxTemplateDepth = 16;
constexpr Millis kLongestTimeout = std::chrono::hours(366 * 24);

enum class ActionKind { kSql, kHttp, kBus, kFunction, kWait };

// How a step, or its undoing, is done.
struct Action {
  ActionKind kind = ActionKind::kWait;
  std::string target;       // schema.function, URL, logical topic, registered name; empty for wait
  Json request;             // template (request_template.h); null = the saga's input
  bool idempotent = false;  // may be done twice; sql:, bus: and wait always may
  bool settled_by_key =
      false;               // its idempotency key, kept in this database, tells what became of it
  bool reply = false;      // bus: wait for saga_signal
  std::string event_type;  // bus; empty = <definition>.<step>
  Millis timeout{30'000};  // 0 = none: what wait and replies have by default
  RetryPolicy retry{.max_attempts = 6,  // 0 = without end
                    .base = Millis(1'000),
                    .factor = 2,
                    .cap = Millis(60'000),
                    .jitter = RetryPolicy::Jitter::kProportional,
                    .jitter_amount = 0.2};
};

struct Step {
  std::string name;
  Action action;
  std::optional<Action> compensate;
  std::string when;             // condition.h; empty = always
  std::string concurrency_tag;  // neighbours with one tag run side by side; empty = alone
};

enum class OnFailure { kCompensate, kStop };

// What a saga does, as a YAML file declares it and as the database keeps it (docs/sagas.md).
struct Definition {
  std::string name;
  int version = 1;
  Millis timeout{0};  // of the whole saga; 0 = none
  OnFailure on_failure = OnFailure::kCompensate;
  std::string outbox;  // schema.table for bus: steps
  std::vector<Step> steps;

  // Whether it is whole and makes sense by itself; no database is asked. One mistake a line.
  absl::Status Validate() const;
  // Canonical: what is hashed and registered. Every default is written out, so that a saga keeps
  // what it began with when a later version of Lockstep has others; keys that mean a set (those of
  // a request) are sorted. It is a definition file, too.
  Json ToJson() const;
  // Refuses what LoadDefinition refuses.
  static absl::StatusOr<Definition> FromJson(const Json& json);
  std::string Hash() const;  // SHA-256 of ToJson, in hex
};

// Reads a file. The status lists the mistakes, one per line, with their places.
absl::StatusOr<Definition> LoadDefinition(const std::string& file);

// "sql:shop.reserve_stock", "https://…", "bus:order.placed.v1", "fn:score", "wait": as it is
// written in a definition.
std::string ActionText(const Action& action);
std::string_view KindName(ActionKind kind);  // sql, http, bus, fn, wait

}  // namespace lockstep::sagas
