#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "publisher/backfill/backfill_store.h"
#include "publisher/backfill/payload_maker.h"
#include "publisher/backfill/source_query.h"
#include "pubsub/message.h"

namespace lockstep::publisher {

// Rows of one backfill to messages (docs/wire.md). The same row of the same version always has the
// same event id, so that what is sent twice is applied once.
class SnapshotMessages {
 public:
  // `declaration` outlives it.
  SnapshotMessages(const Declaration& declaration, std::string backfill, bool repair,
                   PayloadMaker payloads)
      : declaration_(declaration),
        backfill_(std::move(backfill)),
        repair_(repair),
        payloads_(std::move(payloads)) {}

  // INVALID_ARGUMENT with a sentence that names the row when it has no id or version, does not fit
  // the message, or is more than Pub/Sub takes.
  // `at`: when it was read, as FormatTimestamp writes it.
  absl::StatusOr<pubsub::Message> Of(const SourceRow& row, const std::string& at) const;
  absl::StatusOr<pubsub::Message> Of(const Ghost& ghost, const std::string& at) const;

 private:
  pubsub::Message Common(const std::string& aggregate_id, const std::optional<std::string>& tenant,
                         int64_t version, const std::string& at) const;

  const Declaration& declaration_;
  const std::string backfill_;
  const bool repair_;
  const PayloadMaker payloads_;
};

// The id of the message of an aggregate's version in that backfill.
std::string SnapshotEventId(const std::string& backfill, const std::string& aggregate_key,
                            int64_t version);

// "row (7, eu) of catalog.videos"
std::string NameRow(const Declaration& declaration, const KeyTexts& key);

}  // namespace lockstep::publisher
