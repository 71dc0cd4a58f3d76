#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "publisher/outbox/outbox_row.h"

// Where a publisher's events go, for a service with a bus of its own. Public: docs/embedding.md.
namespace lockstep::publisher {

struct DispatchResult {
  absl::Status status;
  std::string message_id;  // empty where the bus has none
  // docs/errors.md; empty = by the status. With INVALID_ARGUMENT a code says that this very row is
  // at fault, whatever becomes of others.
  std::string code;
  // With INVALID_ARGUMENT and a code: the answer may as well be about everybody, so that others of
  // the topic have to pass before this row is at fault.
  bool doubtful = false;
  // Of an outage: how long the other side asked to be left alone.
  std::optional<Millis> retry_after;
  // Of a row that failed: routes that have it now, with their message ids (docs/routes.md).
  std::map<std::string, std::string> taken_by = {};
};

// How the requests of a topic are made.
struct RequestShape {
  int rows = 1'000;      // at most
  bool one_key = false;  // the rows of a request have one key; else there may be many
  bool counted = true;   // max_requests of the relay limits how many are under way
};

// Where a relay hands its rows: Pub/Sub, an in-process bus, or a service's own.
//
// What the statuses mean: see failure.h. A row whose predecessor of the same key failed in the same
// batch must not be delivered: it fails with ABORTED.
class Dispatcher {
 public:
  // One result per row, in their order. Runs exactly once, on any thread; it never blocks.
  using Done = std::function<void(std::vector<DispatchResult>)>;

  virtual ~Dispatcher() = default;  // no call to a Done comes after it

  // The rows have one logical topic; those of a key stand in order, and no other batch with rows of
  // that key is under way. Must not wait for the delivery. `table` names the outbox.
  virtual void Dispatch(const std::string& table, const std::string& topic,
                        std::vector<RowPtr> rows, Done done) = 0;

  // Asked before every Dispatch.
  virtual RequestShape Shape(const std::string& /*topic*/) const { return {}; }

  // The relay of `table` may have so many requests under way from now on: for those that keep to
  // the limit too.
  virtual void SetMaxRequests(const std::string& /*table*/, int /*requests*/) {}
};

}  // namespace lockstep::publisher
