#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/strong_id.h"
#include "postgres/identifier.h"

namespace lockstep::projections {

// What a handler does with a snapshot: how an aggregate stands, which may come again.
enum class OnSnapshot { kRefuse, kIgnore, kCall };

// What a handler of the group's file calls: a function in the database, or an HTTP endpoint.
struct Call {
  std::string handler;  // the handler's name
  std::string place;    // file:line:column
  // One of the two.
  postgres::QualifiedName function;
  std::string url;

  // Whether it is called with events that the group has handled before.
  bool replays = true;
  OnSnapshot snapshots = OnSnapshot::kRefuse;

  // Of a function: tables that it writes, as schema.table, for resets.
  std::vector<std::string> tables;

  // Of an endpoint.
  Millis timeout{10'000};
  int concurrency = 16;  // requests under way, of one process
  bool cloudevents = false;
  std::string secret_file;
  std::string headers_file;
  std::string ca_file;
  bool allow_private = false;

  bool is_http() const { return !url.empty(); }
};

// What code answers that can't accept one event of those it was given: that event becomes a dead
// letter with this reason, and the others come again without it. (A function in the database says
// so with refuse(), of the state schema.)
absl::Status RefuseEvent(const EventId& event, std::string_view reason);

// The event that a failed status refuses by name, and why.
struct Refusal {
  EventId event;  // empty = the status refuses none
  std::string reason;
};
Refusal RefusalIn(const absl::Status& status);

}  // namespace lockstep::projections
