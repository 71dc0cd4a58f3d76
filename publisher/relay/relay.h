#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/daemon/service.h"
#include "platform/daemon/service_thread.h"
#include "platform/retry_policy.h"
#include "postgres/connection.h"
#include "publisher/dispatch/dispatcher.h"
#include "publisher/options/options.h"
#include "publisher/outbox/outbox_store.h"
#include "publisher/relay/answer_handler.h"
#include "publisher/relay/draining.h"
#include "publisher/relay/leased_rows.h"
#include "publisher/relay/look_plan.h"
#include "publisher/relay/mailbox.h"
#include "publisher/relay/marks.h"
#include "publisher/relay/published_lately.h"
#include "publisher/relay/relay_events.h"
#include "publisher/relay/shard_assignment.h"
#include "publisher/relay/sleeper.h"

namespace lockstep::publisher {

// Moves the rows of one outbox to a dispatcher: claim, send, mark.
//
//   outbox --claim--> LeasedRows --requests--> Dispatcher
//      ^                                           |
//      +-- Marks <-- AnswerHandler <-- Mailbox <-- answers
//
// One thread, one connection; it alone touches everything here that is not said to be otherwise.
// While it talks to the database, requests are under way at the bus. It relays the shards that a
// ShardOwner gives it, and none at first. Stop sends nothing new, waits for the answers under way
// (stop_timeout), writes them and gives the rest back.
class Relay : public Service {
 public:
  struct Environment {
    std::string database;
    std::string instance;  // locked_by
    const Clock* clock = &Clock::System();
    Backoff::Random random = Backoff::DefaultRandom();
    Millis stop_timeout{8'000};
    Millis remember{600'000};  // what was published; less than rows are kept
  };

  // `dispatcher` and `events` outlive it.
  Relay(RelayOptions options, Environment environment, Dispatcher& dispatcher, RelayEvents& events);
  ~Relay() override;

  absl::Status Start() override;
  void Stop() override;

  // --- from any thread ---
  // The shards to relay from now on, of `count`. Rows of others are given back unless under way.
  // Answers a number for LeftBehind.
  int64_t SetShards(std::vector<int> shards, int count);
  // All shards are others': whoever waits for this relay to drain its outbox need not.
  void StandBy();
  // True once the relay has followed that SetShards and has no row of another shard in hand.
  bool LeftBehind(int64_t change) const { return shards_.LeftBehind(change); }
  // From the next turn on.
  void Reconfigure(const FollowedRelayOptions& fresh);
  // When the loop last went round.
  SteadyTime last_turn() const { return SteadyTime(SteadyTime::duration(last_turn_.load())); }
  // OK while rows flow; else why not.
  absl::Status health() const;
  // Waits until a look at the outbox found nothing to claim and nothing was in hand. Says why not
  // when rows are left because the bus or the database is out of reach, or at Stop.
  absl::Status WaitUntilDrained();
  void GiveUpDraining() { draining_.GiveUp(); }  // for those who wait

  // Whether this relay speaks for the outbox (heartbeats).
  bool OwnsFirstShard() const { return shards_.has_first(); }

  const RelayOptions& options() const { return options_; }

 private:
  void Run();
  void FollowShards();
  void FollowOptions();
  absl::Status Connect();
  absl::Status Turn();
  void TakeAnswers();
  absl::Status WriteMarks();
  absl::Status RenewLeases();
  absl::Status Claim();
  // Takes those out of `rows` whose content another row has sent or is to send.
  absl::Status SetDuplicatesAside(std::vector<OutboxRow>& rows);
  void Send();
  absl::Status Rest(bool looked);
  void LoseSession(absl::Status why);
  void Finish();

  bool HasRoom() const;  // for another claim
  // Another claim may find what the last one passed over.
  bool MayPassOverLess(SteadyTime now) const;
  TopicPauses::InHand InHand() const;
  ClaimRequest NewClaimRequest() const;
  void GiveBackWaiting(const std::function<bool(const OutboxRow&)>& pick);
  // While rows of other shards are in hand: looks whether that is over.
  void NoteLeaving();
  void NoteTurn();
  void SetHealth(absl::Status health);

  RelayOptions options_;  // the followed part changes on the relay's thread alone
  const Environment environment_;
  Dispatcher& dispatcher_;
  RelayEvents& events_;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();

  std::unique_ptr<postgres::Connection> connection_;
  std::unique_ptr<OutboxStore> store_;
  Backoff reconnect_;
  int database_failures_ = 0;  // in a row

  ShardAssignment shards_;
  LookPlan plan_;
  LeasedRows leased_;
  PublishedLately lately_;
  Marks marks_;
  TopicPauses pauses_;
  AnswerHandler answers_;
  Sleeper sleeper_;
  Draining draining_;

  std::atomic<SteadyTime::rep> last_turn_ = 0;
  ServiceThread thread_;
  mutable std::mutex mu_;
  std::optional<FollowedRelayOptions> new_options_;
  absl::Status health_;
};

}  // namespace lockstep::publisher
