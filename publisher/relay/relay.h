#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
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
#include "publisher/relay/key_queues.h"
#include "publisher/relay/look_plan.h"
#include "publisher/relay/mailbox.h"
#include "publisher/relay/relay_events.h"
#include "publisher/relay/settlement.h"
#include "publisher/relay/sleeper.h"
#include "publisher/relay/topic_pauses.h"

namespace lockstep::publisher {

// Moves the rows of one outbox to a dispatcher: claim, dispatch, settle.
//
//   outbox --claim--> KeyQueues --requests--> Dispatcher
//      ^                                          |
//      +----- Settlement <---- Mailbox <---answers+
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
  bool LeftBehind(int64_t change) const;
  // Takes batch size, limits, poll and retry from `fresh`, from the next turn on. Everything else
  // in it is left alone.
  void Reconfigure(const RelayOptions& fresh);
  // When the loop last went round.
  SteadyTime last_turn() const { return SteadyTime(SteadyTime::duration(last_turn_.load())); }
  // OK while rows flow; else why not.
  absl::Status health() const;
  // Waits until a look at the outbox found nothing to claim and nothing was in hand. Says why not
  // when rows are left because the bus or the database is out of reach, or at Stop.
  absl::Status WaitUntilDrained();

  // Whether this relay speaks for the outbox (heartbeats).
  bool OwnsFirstShard() const { return owns_first_; }

  const RelayOptions& options() const { return options_; }

 private:
  struct UnderWay {
    KeyQueues::Request entries;
    SteadyTime sent_at;
  };

  void Run();
  bool Connect();
  absl::Status Turn();
  absl::Status Claim();
  void Send();
  absl::Status Settle();
  absl::Status Rest(bool looked);
  // Whether other topics are paused than when the last claim passed over them: a pause has ended,
  // by its time or by an answer, and rows may wait.
  bool PassedOverOthers(SteadyTime now) const;
  void Finish();
  void FollowOptions();
  void NoteTurn();
  void SetHealth(absl::Status health);
  void NoteIdle(bool idle);
  bool Awaited() const;  // by WaitUntilDrained
  // Nothing goes on until something that is out of reach comes back.
  void NoteStuck(absl::Status why);
  ClaimRequest NewClaimRequest() const;

  // relay_leases.cc
  absl::Status RenewLeases();
  void TakeShards();
  void NoteLeaving();
  bool Mine(const KeyQueues::Entry& entry) const;

  // relay_answers.cc
  void TakeAnswers();
  void Apply(UnderWay request, std::vector<DispatchResult> results);
  void ApplyKey(const UnderWay& request, size_t first, size_t last,
                const std::vector<DispatchResult>& results, int refused);
  void PauseTopic(const OutboxRow& row, const DispatchResult& result);
  void RetryOrBury(const KeyQueues::Entry& entry, const DispatchResult& result, bool permanent,
                   std::vector<KeyQueues::Entry> behind);
  void GiveBack(std::vector<KeyQueues::Entry> entries, Millis delay,
                const DispatchResult* why = nullptr);

  RelayOptions options_;  // the numbers that Reconfigure brings change on the relay's thread alone
  const Environment environment_;
  Dispatcher& dispatcher_;
  RelayEvents& events_;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();

  std::unique_ptr<postgres::Connection> connection_;
  std::unique_ptr<OutboxStore> store_;
  Backoff reconnect_;
  int database_failures_ = 0;  // in a row
  absl::Status outage_;        // the last one of a topic
  KeyQueues queues_;
  Settlement settlement_;
  TopicPauses pauses_;
  Sleeper sleeper_;
  std::map<int64_t, UnderWay> under_way_;
  int64_t next_request_ = 1;
  size_t rows_under_way_ = 0;
  std::map<std::string, int> live_tokens_;  // lease -> its rows not yet settled
  std::vector<int> shards_;
  int shard_count_ = 1;
  LookPlan plan_;
  bool more_ = false;                     // the last claim was full
  bool look_ = true;                      // there may be rows that the last claim did not see
  bool told_ = false;                     // … because a notification woke the relay
  std::vector<std::string> passed_over_;  // topics, by the last claim
  SteadyTime oldest_lease_;               // of what is in hand; only moves on in RenewLeases

  std::atomic<bool> stop_ = false;
  std::atomic<bool> owns_first_ = false;
  std::atomic<SteadyTime::rep> last_turn_ = 0;
  ServiceThread thread_;
  mutable std::mutex mu_;
  std::condition_variable idle_changed_;
  std::optional<std::pair<std::vector<int>, int>> new_shards_;
  std::optional<RelayOptions> new_options_;
  int64_t changes_ = 0;   // SetShards calls
  int64_t followed_ = 0;  // the last one that the loop has followed …
  bool leaving_ = false;  // … and whether rows of other shards are still in hand
  absl::Status health_;
  int64_t idle_turns_ = 0;
  int64_t awaited_turns_ = 0;
  bool idle_ = false;
  int64_t stuck_turns_ = 0;
  absl::Status stuck_;
  bool gave_up_ = false;
};

}  // namespace lockstep::publisher
