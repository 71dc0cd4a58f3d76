#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "platform/metrics.h"
#include "publisher/backfill/backfill_store.h"
#include "publisher/backfill/page_size.h"
#include "publisher/backfill/snapshot_message.h"
#include "publisher/backfill/source_query.h"
#include "pubsub/publisher.h"

namespace lockstep::publisher {

// One turn at a backfill that the worker has leased: reads pages, sends them, and saves the cursor
// of each after Pub/Sub has answered for all of it; the next page is read meanwhile. Of its
// worker's thread.
class BackfillRun {
 public:
  struct Parts {
    BackfillStore& store;
    pubsub::Publisher& publisher;
    std::string database;  // where pages are read
    bool replica = false;  // it may be behind the outbox's
    std::string topic;     // its full name
    std::string token;
    Millis lease;
    Millis turn;
    prometheus::Counter& rows;
    std::stop_token stop;
  };
  // `record` and `declaration` outlive it.
  BackfillRun(Parts parts, const BackfillRecord& record, const Declaration& declaration);

  enum class End { kDone, kTurnOver, kLost, kStopped };
  // What it ended with; or the fault (see MayPass).
  absl::StatusOr<End> Run();

  // Whether a fault of a run may be gone at the next try: the bus, a database, a replica behind.
  static bool MayPass(const absl::Status& fault);

 private:
  struct Answers;
  struct Page {
    std::vector<pubsub::Message> messages;
    KeyTexts cursor;
    int64_t rows = 0;
    bool last = false;
  };
  struct Sent {
    std::shared_ptr<Answers> answers;
    KeyTexts cursor;
    int64_t rows = 0;
    std::vector<std::string> last;  // events
  };

  absl::Status Open();
  // Notes where it ends. False = the lease is lost.
  absl::StatusOr<bool> Begin();
  // Whether the rows can be sent, and the highest key. Answers how many there are, about. On a
  // thread of its own, with a session of its own; `lost` cancels it.
  absl::StatusOr<int64_t> LookAtSource(const std::stop_token& lost);
  absl::Status AwaitReplica(const std::string& lsn);
  // Nullopt = the lease is lost.
  absl::StatusOr<std::optional<Page>> Next(const std::optional<KeyTexts>& after);
  absl::StatusOr<Page> NextRows(const std::optional<KeyTexts>& after);
  absl::StatusOr<Page> NextRepairs(const std::optional<KeyTexts>& after);
  void Send(Page page);
  // Waits for the answers of what was sent, and saves its cursor. Nullopt = go on.
  absl::StatusOr<std::optional<End>> FinishSent();

  const Parts parts_;
  const BackfillRecord& record_;
  const Declaration& declaration_;
  std::unique_ptr<postgres::Connection> source_;
  std::optional<SourceQuery> query_;
  std::optional<SnapshotMessages> messages_;
  std::optional<KeyTexts> highest_;
  PageSize size_;
  std::optional<Sent> sent_;
  SteadyTime not_before_;  // the next page, by the throttle
};

}  // namespace lockstep::publisher
