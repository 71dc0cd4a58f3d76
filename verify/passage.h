#pragma once

#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"
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
};

// Waits until a group has had everything that an outbox held when it was asked: its rows up to then
// are published (dead and quarantined ones never will be), and since then every live instance of
// the group has had nothing older in hand.
class Passage {
 public:
  // Without a connection to the source (it is not at hand) its rows count as published.
  Passage(postgres::Connection* source, postgres::QualifiedName outbox,
          postgres::Connection& replica, const state::Schema& schema, std::string group,
          PassageOptions options);

  // Fails with a sentence when it takes too long, or when nobody runs.
  absl::Status Await(const std::stop_token& stop);

 private:
  absl::Status AwaitPublished(SteadyTime deadline, const std::stop_token& stop);
  absl::Status AwaitApplied(SteadyTime deadline, const std::stop_token& stop);
  bool Rest(SteadyTime deadline, const std::stop_token& stop) const;  // false = time is up

  postgres::Connection* const source_;
  const postgres::QualifiedName outbox_;
  postgres::Connection& replica_;
  const state::Overview overview_;
  const std::string group_;
  const PassageOptions options_;
};

}  // namespace lockstep::verify
