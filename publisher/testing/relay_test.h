#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "publisher/dispatch/dispatcher.h"
#include "publisher/relay/relay.h"
#include "publisher/testing/outbox_test.h"
#include "tests/support/fake_bus.h"

namespace lockstep::publisher {

// Remembers what relays did, and lets a test wait for it. Safe from any thread.
class Recorder : public RelayEvents {
 public:
  struct Retry {
    int attempts;
    std::string code;
    Millis delay;
    std::string error;
  };

  void OnClaimed(const std::vector<OutboxRow>& rows) override;
  void OnRow(const RowEvent& event) override;
  void OnDatabaseError(const absl::Status& error) override;
  void OnGone(int64_t rows) override;
  void OnShards(const std::vector<int>& held, int of) override;

  // False after 20 s.
  bool Await(const std::function<bool()>& condition);

  // What follows is guarded by `mu`; Await's condition runs under it.
  std::mutex mu;
  int claimed = 0;
  int largest_claim = 0;
  int published = 0;
  std::vector<Retry> retries;
  std::vector<std::string> dead;     // "key:version code"
  std::vector<std::string> outages;  // "topic code"
  std::vector<Millis> pauses;        // of the same
  int known = 0;
  int dedup_hits = 0;
  int failed = 0;
  int lost = 0;
  std::string lost_state;  // of the last one
  int database_errors = 0;
  int64_t gone = 0;
  std::vector<int> shards;

 private:
  void Note(const std::function<void()>& change);
  std::condition_variable changed_;
};

// Relays of shop.outbox on a bus in memory with the topic shop.events.
class RelayTest : public OutboxTest {
 protected:
  RelayTest();

  // Retries and polls are quick unless a test says otherwise.
  static RelayOptions Options();

  struct Running {
    Recorder events;
    std::unique_ptr<Dispatcher> own_dispatcher;
    std::unique_ptr<Relay> relay;
  };
  // A relay on the bus (or on `dispatcher`), started, with no shard yet.
  std::unique_ptr<Running> StartRelay(const RelayOptions& options, const std::string& name = "a",
                                      std::unique_ptr<Dispatcher> dispatcher = nullptr,
                                      Backoff::Random random = Backoff::DefaultRandom());
  // The same as the owner of all there is.
  std::unique_ptr<Running> StartOwner(const RelayOptions& options = Options(),
                                      std::unique_ptr<Dispatcher> dispatcher = nullptr,
                                      Backoff::Random random = Backoff::DefaultRandom());

  // "k:1 k:2" as published, of one topic.
  std::string Published(const std::string& topic = "shop.events") const;
  bool AwaitPublished(size_t count) const;
  void EndPublisherSessions();
  // They can't be sent as they are, whatever the bus says: around enqueue's checks.
  static constexpr char kSpoilFirstVersions[] =
      "UPDATE shop.outbox SET attributes = '{\"number\": 1}' WHERE version = 1";
  void SpoilFirstVersions() { db_.Run(kSpoilFirstVersions); }
  // Makes waiting rows due, and tells the relay.
  void MakeDue();

  testing::FakeBus bus_;
  const Clock* clock_ = &Clock::System();  // of relays that are started
};

}  // namespace lockstep::publisher
