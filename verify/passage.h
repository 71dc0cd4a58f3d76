#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"
#include "publisher/backfill/declaration.h"
#include "publisher/outbox/outbox_rows.h"
#include "state/events/event_fates.h"
#include "state/groups/overview.h"
#include "state/schema.h"

namespace lockstep::verify {

struct PassageOptions {
  // How long the replica is waited for.
  Millis timeout{120'000};
  // How long after everything was published the runners must have had nothing older in hand: what
  // Pub/Sub needs to deliver. Where runners die, more than the subscription's ack deadline: a
  // message of a runner that died comes again after that.
  Millis grace{5'000};
  Millis look{500};
  // Called before each look, with what is waited for in words; may be empty.
  std::function<void(const std::string& what)> waiting;
};

// Waits until the rows that the outbox holds now are published (dead and quarantined ones never
// will be), and answers the newest of them about the declared aggregates: whoever has it has come
// so far. Fails with a sentence when it takes too long.
absl::StatusOr<std::optional<publisher::PublishedEvent>> AwaitPublished(
    postgres::Connection& source, const publisher::Declaration& declaration,
    const PassageOptions& options, SteadyTime deadline, const std::stop_token& stop);

// Waits until a group has had everything that an outbox held when it was asked: its rows up to then
// are published (dead and quarantined ones never will be); something newer than the call has come
// through, a heartbeat or an event, or the newest event that there was; and for the grace every
// live instance of the group has been connected and has had nothing older in hand.
class Passage {
 public:
  // The source is not at hand when its connection is null: then `newest` is what it had, as a file
  // says, and its rows count as published. Without either, only what is newer than the call counts;
  // `silent`: there was no event that could have come.
  struct Source {
    postgres::Connection* connection = nullptr;
    std::optional<publisher::PublishedEvent> newest;
    bool silent = false;
  };
  // REQUIRES: all outlive it.
  Passage(Source source, const publisher::Declaration& declaration, postgres::Connection& replica,
          const state::Schema& schema, std::string group, PassageOptions options);

  // Fails with a sentence when it takes too long, or when nobody runs.
  absl::Status Await(const std::stop_token& stop);

  // Until the group knows these events, of which `left` says which are still of interest; for what
  // a repair has sent.
  absl::Status AwaitEvents(
      std::vector<state::EventFates::Event> events,
      const std::function<absl::Status(std::vector<state::EventFates::Event>* left)>& left,
      const std::stop_token& stop);

 private:
  absl::Status AwaitApplied(WallTime begun, SteadyTime deadline, const std::stop_token& stop);
  // Whether something that was published after `begun` has come through, or all that there was.
  absl::StatusOr<bool> Moved(const postgres::Row& through, WallTime begun);
  absl::StatusOr<std::vector<state::EventFates::Event>> Unknown(
      const std::vector<state::EventFates::Event>& events);

  Source source_;
  const publisher::Declaration& declaration_;
  postgres::Connection& replica_;
  const state::Overview overview_;
  const state::EventFates fates_;
  const std::string group_;
  const PassageOptions options_;
};

}  // namespace lockstep::verify
