#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "emulator/core/journal.h"
#include "emulator/store/sqlite.h"
#include "platform/clock.h"

namespace lockstep::emulator {

// The state of an emulator in a directory: one SQLite file, which belongs to one process at a time.
// Every call is a transaction of its own, so a process that is killed at any moment leaves all of
// it or nothing, and nothing that was answered is gone. It does not wait for the disk (write-ahead
// log, synchronous = NORMAL): a machine that loses its power may lose the last moments, never the
// file.
class StateStore : public Journal {
 public:
  // Makes the directory if need be.
  static absl::StatusOr<std::unique_ptr<StateStore>> Open(const std::string& directory);

  absl::StatusOr<SavedState> Load();
  // Forgets messages that nothing can deliver again: not owed, not in a snapshot, not retained.
  absl::Status Tidy(WallTime now);

  absl::Status SaveTopic(uint64_t number, const google::pubsub::v1::Topic& config,
                         bool deleted) override;
  absl::Status SaveSubscription(const google::pubsub::v1::Subscription& config, uint64_t topic,
                                uint64_t first_sequence) override;
  absl::Status ForgetSubscription(const std::string& name) override;
  absl::Status SaveSnapshot(const google::pubsub::v1::Snapshot& config, uint64_t topic,
                            uint64_t end, const std::vector<MessagePtr>& unacked) override;
  absl::Status ForgetSnapshot(const std::string& name) override;
  absl::Status SaveSchema(const std::string& name,
                          const std::vector<google::pubsub::v1::Schema>& revisions) override;
  absl::Status Published(uint64_t topic, const std::vector<MessagePtr>& messages,
                         const std::vector<Owed>& owed) override;
  absl::Status Acked(const std::string& subscription,
                     const std::vector<uint64_t>& sequences) override;
  absl::Status Sought(const std::string& subscription,
                      const std::vector<MessagePtr>& unacked) override;

 private:
  explicit StateStore(std::unique_ptr<Sqlite> database) : database_(std::move(database)) {}
  absl::Status Migrate();
  absl::Status LoadTopics(SavedState* state);
  absl::Status LoadSubscriptions(SavedState* state);
  absl::Status LoadSnapshots(SavedState* state);

  std::mutex mu_;  // a leaf
  std::unique_ptr<Sqlite> database_;
};

}  // namespace lockstep::emulator
