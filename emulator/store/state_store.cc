// StateStore: what is written. state_store_load.cc reads it again.
#include "emulator/store/state_store.h"

#include <filesystem>
#include <system_error>

#include "emulator/wire/proto_time.h"
#include "platform/status.h"

namespace lockstep::emulator {
namespace {

namespace pb = google::pubsub::v1;

// `retention` is in milliseconds, `retains` says whether it is for acked messages too.
constexpr char kSchema[] = R"sql(
CREATE TABLE topics (
  number INTEGER PRIMARY KEY,
  config BLOB NOT NULL,
  retention INTEGER NOT NULL,
  deleted INTEGER NOT NULL,
  next_sequence INTEGER NOT NULL DEFAULT 1);
CREATE TABLE messages (
  topic INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  id TEXT NOT NULL,
  published INTEGER NOT NULL,  -- microseconds
  ordering_key TEXT NOT NULL,
  wire BLOB NOT NULL,
  PRIMARY KEY (topic, sequence)) WITHOUT ROWID;
CREATE TABLE subscriptions (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  config BLOB NOT NULL,
  topic INTEGER NOT NULL,
  first_sequence INTEGER NOT NULL,
  retention INTEGER NOT NULL,
  retains INTEGER NOT NULL);
CREATE TABLE unacked (
  subscription INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  PRIMARY KEY (subscription, sequence)) WITHOUT ROWID;
CREATE TABLE snapshots (
  name TEXT PRIMARY KEY,
  config BLOB NOT NULL,
  topic INTEGER NOT NULL,
  "end" INTEGER NOT NULL);
CREATE TABLE snapshot_unacked (
  snapshot TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  PRIMARY KEY (snapshot, sequence)) WITHOUT ROWID;
CREATE TABLE schemas (
  name TEXT NOT NULL,
  place INTEGER NOT NULL,
  revision BLOB NOT NULL,
  PRIMARY KEY (name, place));
PRAGMA application_id = 1280263749;
PRAGMA user_version = 1;
)sql";

// What no subscription delivers any more, for it is too old.
constexpr char kTidyUnacked[] = R"sql(
DELETE FROM unacked AS u
 WHERE EXISTS (SELECT 1 FROM subscriptions s JOIN topics t ON t.number = s.topic
                 JOIN messages m ON m.topic = s.topic AND m.sequence = u.sequence
                WHERE s.id = u.subscription
                  AND m.published < ?1 - 1000 * max(s.retention, t.retention))
)sql";

constexpr char kTidyMessages[] = R"sql(
DELETE FROM messages AS m
 WHERE m.published < ?1 - 1000 * max(
         (SELECT t.retention FROM topics t WHERE t.number = m.topic),
         coalesce((SELECT max(s.retention) FROM subscriptions s
                    WHERE s.topic = m.topic AND s.retains), 0))
   AND NOT EXISTS (SELECT 1 FROM subscriptions s JOIN unacked u ON u.subscription = s.id
                    WHERE s.topic = m.topic AND u.sequence = m.sequence)
   AND NOT EXISTS (SELECT 1 FROM snapshots n WHERE n.topic = m.topic AND n."end" <= m.sequence)
   AND NOT EXISTS (SELECT 1 FROM snapshots n JOIN snapshot_unacked u ON u.snapshot = n.name
                    WHERE n.topic = m.topic AND u.sequence = m.sequence)
)sql";

std::string Bytes(const google::protobuf::Message& message) { return message.SerializeAsString(); }

uint64_t Count(Millis duration) { return static_cast<uint64_t>(duration.count()); }

}  // namespace

absl::StatusOr<std::unique_ptr<StateStore>> StateStore::Open(const std::string& directory) {
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (failed) {
    return Unavailable("the directory {} can't be made: {}", directory, failed.message());
  }
  ASSIGN_OR_RETURN(auto database, Sqlite::Open(directory + "/pubsub.sqlite"));
  std::unique_ptr<StateStore> store(new StateStore(std::move(database)));
  RETURN_IF_ERROR(store->Migrate());
  return store;
}

absl::Status StateStore::Migrate() {
  // Exclusive: a second emulator is refused, and no shared memory is needed.
  RETURN_IF_ERROR(database_->Execute("PRAGMA locking_mode = EXCLUSIVE"));
  RETURN_IF_ERROR(database_->Execute("PRAGMA journal_mode = WAL"));
  RETURN_IF_ERROR(database_->Execute("PRAGMA synchronous = NORMAL"));
  uint64_t version = 0;
  {
    ASSIGN_OR_RETURN(auto* statement, database_->Prepare("PRAGMA user_version"));
    ASSIGN_OR_RETURN(const bool found, statement->Next());
    if (found) version = statement->Number(0);
    RETURN_IF_ERROR(statement->Run());
  }
  if (version == 0) return database_->Transact([&] { return database_->Execute(kSchema); });
  if (version == 1) return database_->Transact([] { return absl::OkStatus(); });  // takes the lock
  return FailedPrecondition(
      "the state was written by a newer lockstep-emulator (format {}, this one knows 1). Use that "
      "one, or name another directory",
      version);
}

absl::Status StateStore::SaveTopic(uint64_t number, const pb::Topic& config, bool deleted) {
  std::scoped_lock lock(mu_);
  ASSIGN_OR_RETURN(auto* save,
                   database_->Prepare("INSERT INTO topics (number, config, retention, deleted) "
                                      "VALUES (?, ?, ?, ?) ON CONFLICT (number) DO UPDATE SET "
                                      "config = excluded.config, retention = excluded.retention, "
                                      "deleted = excluded.deleted"));
  const Millis retention = FromProto(config.message_retention_duration());
  return save->Bind(number)
      .BindBytes(Bytes(config))
      .Bind(Count(retention))
      .Bind(deleted ? 1 : 0)
      .Run();
}

absl::Status StateStore::SaveSubscription(const pb::Subscription& config, uint64_t topic,
                                          uint64_t first_sequence) {
  std::scoped_lock lock(mu_);
  const Millis retention = FromProto(config.message_retention_duration());
  const bool retains = config.retain_acked_messages() && !config.detached();
  return database_->Transact([&]() -> absl::Status {
    // An update leaves where it began.
    ASSIGN_OR_RETURN(auto* save,
                     database_->Prepare("INSERT INTO subscriptions "
                                        "(name, config, topic, first_sequence, retention, retains) "
                                        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE "
                                        "SET config = excluded.config, "
                                        "retention = excluded.retention, "
                                        "retains = excluded.retains"));
    RETURN_IF_ERROR(save->Bind(config.name())
                        .BindBytes(Bytes(config))
                        .Bind(topic)
                        .Bind(first_sequence)
                        .Bind(Count(retention))
                        .Bind(retains ? 1 : 0)
                        .Run());
    if (!config.detached()) return absl::OkStatus();
    ASSIGN_OR_RETURN(auto* drop,
                     database_->Prepare("DELETE FROM unacked WHERE subscription = "
                                        "(SELECT id FROM subscriptions WHERE name = ?)"));
    return drop->Bind(config.name()).Run();
  });
}

absl::Status StateStore::ForgetSubscription(const std::string& name) {
  std::scoped_lock lock(mu_);
  return database_->Transact([&]() -> absl::Status {
    ASSIGN_OR_RETURN(auto* drop,
                     database_->Prepare("DELETE FROM unacked WHERE subscription = "
                                        "(SELECT id FROM subscriptions WHERE name = ?)"));
    RETURN_IF_ERROR(drop->Bind(name).Run());
    ASSIGN_OR_RETURN(auto* forget, database_->Prepare("DELETE FROM subscriptions WHERE name = ?"));
    return forget->Bind(name).Run();
  });
}

absl::Status StateStore::SaveSnapshot(const pb::Snapshot& config, uint64_t topic, uint64_t end,
                                      const std::vector<MessagePtr>& unacked) {
  std::scoped_lock lock(mu_);
  return database_->Transact([&]() -> absl::Status {
    ASSIGN_OR_RETURN(auto* save,
                     database_->Prepare("INSERT OR REPLACE INTO snapshots (name, config, topic, "
                                        "\"end\") VALUES (?, ?, ?, ?)"));
    RETURN_IF_ERROR(save->Bind(config.name()).BindBytes(Bytes(config)).Bind(topic).Bind(end).Run());
    ASSIGN_OR_RETURN(auto* owe, database_->Prepare("INSERT OR IGNORE INTO snapshot_unacked "
                                                   "(snapshot, sequence) VALUES (?, ?)"));
    for (const MessagePtr& message : unacked) {
      RETURN_IF_ERROR(owe->Bind(config.name()).Bind(message->sequence).Run());
    }
    return absl::OkStatus();
  });
}

absl::Status StateStore::ForgetSnapshot(const std::string& name) {
  std::scoped_lock lock(mu_);
  return database_->Transact([&]() -> absl::Status {
    ASSIGN_OR_RETURN(auto* drop,
                     database_->Prepare("DELETE FROM snapshot_unacked WHERE snapshot = ?"));
    RETURN_IF_ERROR(drop->Bind(name).Run());
    ASSIGN_OR_RETURN(auto* forget, database_->Prepare("DELETE FROM snapshots WHERE name = ?"));
    return forget->Bind(name).Run();
  });
}

absl::Status StateStore::SaveSchema(const std::string& name,
                                    const std::vector<pb::Schema>& revisions) {
  std::scoped_lock lock(mu_);
  return database_->Transact([&]() -> absl::Status {
    ASSIGN_OR_RETURN(auto* forget, database_->Prepare("DELETE FROM schemas WHERE name = ?"));
    RETURN_IF_ERROR(forget->Bind(name).Run());
    ASSIGN_OR_RETURN(auto* save, database_->Prepare("INSERT INTO schemas (name, place, revision) "
                                                    "VALUES (?, ?, ?)"));
    for (size_t place = 0; place < revisions.size(); ++place) {
      RETURN_IF_ERROR(save->Bind(name).Bind(place).BindBytes(Bytes(revisions[place])).Run());
    }
    return absl::OkStatus();
  });
}

absl::Status StateStore::Published(uint64_t topic, const std::vector<MessagePtr>& messages,
                                   const std::vector<Owed>& owed) {
  std::scoped_lock lock(mu_);
  return database_->Transact([&]() -> absl::Status {
    ASSIGN_OR_RETURN(auto* save,
                     database_->Prepare("INSERT INTO messages (topic, sequence, id, published, "
                                        "ordering_key, wire) VALUES (?, ?, ?, ?, ?, ?)"));
    for (const MessagePtr& message : messages) {
      const auto published = std::chrono::duration_cast<std::chrono::microseconds>(
          message->publish_time.time_since_epoch());
      RETURN_IF_ERROR(save->Bind(topic)
                          .Bind(message->sequence)
                          .Bind(message->id)
                          .Bind(static_cast<uint64_t>(published.count()))
                          .Bind(message->ordering_key)
                          .BindBytes(message->wire)
                          .Run());
    }
    ASSIGN_OR_RETURN(auto* owe, database_->Prepare("INSERT INTO unacked (subscription, sequence) "
                                                   "SELECT id, ?2 FROM subscriptions "
                                                   "WHERE name = ?1"));
    for (const Owed& each : owed) {
      RETURN_IF_ERROR(owe->Bind(each.subscription).Bind(each.sequence).Run());
    }
    // Sequences go on, whatever Tidy takes away.
    ASSIGN_OR_RETURN(auto* advance,
                     database_->Prepare("UPDATE topics SET next_sequence = ? WHERE number = ?"));
    return advance->Bind(messages.back()->sequence + 1).Bind(topic).Run();
  });
}

absl::Status StateStore::Acked(const std::string& subscription,
                               const std::vector<uint64_t>& sequences) {
  std::scoped_lock lock(mu_);
  return database_->Transact([&]() -> absl::Status {
    ASSIGN_OR_RETURN(auto* ack, database_->Prepare("DELETE FROM unacked WHERE sequence = ?2 AND "
                                                   "subscription = (SELECT id FROM subscriptions "
                                                   "WHERE name = ?1)"));
    for (const uint64_t sequence : sequences) {
      RETURN_IF_ERROR(ack->Bind(subscription).Bind(sequence).Run());
    }
    return absl::OkStatus();
  });
}

absl::Status StateStore::Sought(const std::string& subscription,
                                const std::vector<MessagePtr>& unacked) {
  std::scoped_lock lock(mu_);
  return database_->Transact([&]() -> absl::Status {
    ASSIGN_OR_RETURN(auto* drop,
                     database_->Prepare("DELETE FROM unacked WHERE subscription = "
                                        "(SELECT id FROM subscriptions WHERE name = ?)"));
    RETURN_IF_ERROR(drop->Bind(subscription).Run());
    ASSIGN_OR_RETURN(auto* owe, database_->Prepare("INSERT INTO unacked (subscription, sequence) "
                                                   "SELECT id, ?2 FROM subscriptions "
                                                   "WHERE name = ?1"));
    for (const MessagePtr& message : unacked) {
      RETURN_IF_ERROR(owe->Bind(subscription).Bind(message->sequence).Run());
    }
    return absl::OkStatus();
  });
}

absl::Status StateStore::Tidy(WallTime now) {
  std::scoped_lock lock(mu_);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch());
  return database_->Transact([&]() -> absl::Status {
    for (const char* tidy : {kTidyUnacked, kTidyMessages}) {
      ASSIGN_OR_RETURN(auto* statement, database_->Prepare(tidy));
      RETURN_IF_ERROR(statement->Bind(static_cast<uint64_t>(micros.count())).Run());
    }
    // A deleted topic goes with the last that could deliver of it.
    return database_->Execute(
        "DELETE FROM topics WHERE deleted AND number NOT IN (SELECT topic FROM subscriptions) "
        "AND number NOT IN (SELECT topic FROM snapshots)");
  });
}

}  // namespace lockstep::emulator
