#pragma once

#include <deque>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "projections/model/projector.h"
#include "runner/batch/key_plan.h"
#include "runner/batch/outside.h"
#include "runner/message/inbound.h"
#include "state/events/dead_letters.h"
#include "state/events/inbox.h"
#include "state/events/key_states.h"
#include "state/events/opening.h"
#include "state/events/parking.h"
#include "state/groups/epochs.h"
#include "state/groups/slots.h"
#include "state/positions/offsets.h"

namespace lockstep::runner {

enum class OnPoison { kPark, kSkip };
enum class OnGap { kDeclared, kPark, kApply };
// By what a generation of the read model knows an event again.
enum class InboxMode { kEvent, kAggregate };
// With which version an aggregate begins of which nothing is known.
enum class Baseline { kFirstSeen, kSnapshot };

// How a group decides about order; see GroupOptions for the words of the configuration.
struct BatchRules {
  OnPoison on_poison = OnPoison::kPark;
  OnGap on_gap = OnGap::kDeclared;
  bool follow_versions = false;  // also where no event minds a gap
  Baseline baseline = Baseline::kFirstSeen;
  // A rebuild's: whatever it sees is handled by the live slot. Nothing is called outside, and
  // functions take it for a replay.
  bool shadow = false;

  // Whether an event parks on a gap of which its projections say so, or not.
  bool ParksOnGap(bool declared) const {
    return on_gap == OnGap::kPark || (on_gap == OnGap::kDeclared && declared);
  }
  // `may_park`: some event of the projections says that it parks on a gap.
  KeyRules ForKeys(bool may_park) const {
    return {.track_versions = follow_versions || ParksOnGap(may_park),
            .gaps = ParksOnGap(may_park),
            .park_on_poison = on_poison == OnPoison::kPark,
            .from_the_first = baseline == Baseline::kSnapshot};
  }
};

// Whether a group may know events again by their versions (inbox: aggregate): FAILED_PRECONDITION
// with what is in the way, and the cure.
absl::Status CheckByVersions(const std::string& group, OnGap on_gap,
                             const projections::Projector& projector);

// A parked event that is to be written as dead when it is next loaded.
struct MarkedDead {
  EventId event;
  Poison poison;
  int attempts = 0;  // transactions that failed with it
};

struct BatchResult {
  SteadyTime began;
  SteadyTime commit_began;                                // its acks count from here, by BootTime
  std::vector<Fate> fates;                                // one per item, in their order
  int released = 0;                                       // parked events that were applied along
  std::deque<Inbound> loaded;                             // out of parking …
  std::vector<std::pair<const Inbound*, Fate>> unparked;  // … and those that wait no more
  int dead = 0;                                           // released ones included
  int64_t overtaken = 0;  // dead letters that nothing waits for since a snapshot came
  // Nothing was committed: events turned out to conflict when some of their tables had been written
  // (items carry that as their poison now: run them again), or more would be dead than allowed.
  bool rolled_back = false;
  bool too_many_dead = false;
  std::vector<MarkedDead> parked_conflicts;  // rolled back for these parked events, alone or too
  // Rolled back because handlers have not accepted all of it yet: items that they have not are
  // marked (Inbound::unanswered), and of the parked events so many, from the first on, are through.
  std::optional<HandlerOutage> outage;
  int parked_answered = 0;
  // Aggregates with more parked events than one transaction takes: go on with these.
  std::vector<std::string> unfinished;
};

// How much of what waits a transaction takes along, and how many may die in it.
struct ReleaseLimits {
  int max_events = 500;  // in all; 0 = none, they are answered as unfinished
  int64_t max_bytes = 16 << 20;
  std::vector<MarkedDead> marked_dead;
  Outside* outside =
      nullptr;  // REQUIRES: set where the group has HTTP handlers, but for a shadow's
  int max_dead = std::numeric_limits<int>::max();
};

// The parked events that a transaction took along, whether or not it committed.
struct Loaded {
  int events = 0;
  EventId first;
};

// Whose offset a batch saves.
struct LaneIdentity {
  std::string instance;
  int lane = 0;
};

// What makes an event dead whose transaction, all others left out, failed like this.
Poison PoisonOf(const absl::Status& failed);

// The transaction of lockstep: epoch, inbox, decisions per aggregate, projections, dead letters,
// parking and offset commit together or not at all. Stateless between runs; the connection comes
// from the caller, a lane or lockstepctl. Safe from any thread, each with a connection of its own.
class Batch {
 public:
  Batch(const state::Schema& schema, const ConsumerGroup& group,
        const projections::Projector& projector, state::OffsetProvider& offsets, BatchRules rules);

  // One transaction over messages from the bus. A failure leaves nothing behind (unless it is in
  // doubt) and is ABORTED when the epoch is over, the database's otherwise.
  absl::StatusOr<BatchResult> Run(postgres::Connection& connection, const state::GroupEpoch& under,
                                  const LaneIdentity& lane, std::span<Inbound* const> items,
                                  const ReleaseLimits& limits = {}) const;

  // Applies what waits for these aggregates and no longer has to; saves no offset.
  absl::StatusOr<BatchResult> Release(postgres::Connection& connection,
                                      const state::GroupEpoch& under,
                                      const std::vector<std::string>& keys,
                                      const ReleaseLimits& limits = {},
                                      Loaded* loaded = nullptr) const;

  // Ends one dead letter by hand: applies it after all (with its aggregate's lock, in its place in
  // the order), or gives it up so that its successors may go on. What waits behind it is answered
  // as unfinished. FAILED_PRECONDITION when it is no longer dead; INVALID_ARGUMENT when it can
  // still not be applied. Never touches the offset.
  absl::StatusOr<BatchResult> Resolve(postgres::Connection& connection,
                                      const state::GroupEpoch& under,
                                      const state::DeadLetterResolution& resolution,
                                      Outside* outside = nullptr) const;

  // Lets an aggregate's events go on at a version although some before it have not come: those are
  // given up, what is at hand before it is applied in its turn. What may go on is answered as
  // unfinished. FAILED_PRECONDITION with a sentence when there is nothing to give up.
  absl::StatusOr<BatchResult> SkipTo(postgres::Connection& connection,
                                     const state::GroupEpoch& under,
                                     const state::GapSkip& skip) const;

  // OK while the epoch is still `under`; ABORTED when it is over.
  absl::Status Confirm(postgres::Connection& connection, const state::GroupEpoch& under) const;

  // The session whose lock keeps this group from writing its tables, in words; empty if none does.
  absl::StatusOr<std::string> WhoLocksATable(postgres::Connection& connection) const;

  // Whether the group's rules go with how the generation knows events again.
  absl::Status CheckInbox(const state::GroupEpoch& under) const;

  const state::KeyStates& key_states() const { return key_states_; }
  bool tracks_versions() const { return key_rules_.track_versions; }
  bool minds_gaps() const { return key_rules_.track_versions && key_rules_.gaps; }

 private:
  friend class BatchRun;

  // Answers `rolled_back` when a snapshot of the aggregate came between, which the next try sees.
  absl::StatusOr<BatchResult> TryToResolve(postgres::Connection& connection,
                                           const state::GroupEpoch& under,
                                           const state::DeadLetterResolution& resolution,
                                           Outside* outside) const;
  absl::Status StillDead(postgres::Connection& connection, int64_t id, const Poison& poison) const;

  const std::string schema_;
  const ConsumerGroup group_;
  const projections::Projector& projector_;
  state::OffsetProvider& offsets_;
  const BatchRules rules_;
  const KeyRules key_rules_;
  const state::Epochs epochs_;
  const state::Opening opening_;
  const state::KeyStates key_states_;
  const state::Parking parking_;
  const state::DeadLetters dead_letters_;
  const state::Inbox inbox_;
  const state::Slots slots_;
};

}  // namespace lockstep::runner
