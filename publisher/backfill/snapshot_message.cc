#include "publisher/backfill/snapshot_message.h"

#include <limits>

#include "envelope/event.h"
#include "platform/status.h"
#include "publisher/backfill/uuid5.h"

namespace lockstep::publisher {

std::string NameRow(const Declaration& declaration, const KeyTexts& key) {
  return fmt::format("row ({}) of {}", fmt::join(key, ", "), declaration.SourceName());
}

std::string SnapshotEventId(const std::string& backfill, const std::string& aggregate_key,
                            int64_t version) {
  return Uuid5(backfill, fmt::format("{}\n{}", aggregate_key, version));
}

pubsub::Message SnapshotMessages::Common(const std::string& aggregate_id,
                                         const std::optional<std::string>& tenant, int64_t version,
                                         const std::string& at) const {
  const std::string key =
      envelope::AggregateKey({tenant, declaration_.aggregate_type, aggregate_id});
  pubsub::Message message;
  auto& attributes = message.attributes;
  attributes.reserve(13);
  attributes["event_id"] = SnapshotEventId(backfill_, key, version);
  attributes["event_type"] = declaration_.event_type;
  attributes["aggregate_type"] = declaration_.aggregate_type;
  attributes["aggregate_id"] = aggregate_id;
  attributes["version"] = fmt::format("{}", version);
  attributes["schema_version"] = fmt::format("{}", declaration_.schema_version);
  attributes["occurred_at"] = at;
  attributes["topic"] = declaration_.topic;
  attributes["lockstep_kind"] = "snapshot";
  if (tenant.has_value()) attributes["tenant_id"] = *tenant;
  if (repair_) attributes["lockstep_overwrite"] = "true";
  message.ordering_key = aggregate_id;
  return message;
}

absl::StatusOr<pubsub::Message> SnapshotMessages::Of(const SourceRow& row,
                                                     const std::string& at) const {
  const auto name = [&] { return NameRow(declaration_, row.key); };
  if (!row.aggregate_id.has_value() || row.aggregate_id->empty()) {
    return InvalidArgument("{} has no {}, which is its aggregate's id", name(),
                           declaration_.aggregate_id);
  }
  if (!row.version.has_value() || *row.version < 1 ||
      *row.version == std::numeric_limits<int64_t>::max()) {
    return InvalidArgument(
        "{} has {} in its version column {}; versions start at 1: set it, then resume", name(),
        row.version ? fmt::format("{}", *row.version) : "NULL", declaration_.version);
  }
  pubsub::Message message = Common(*row.aggregate_id, row.tenant_id, *row.version, at);
  message.attributes["content_type"] = payloads_.content_type();
  auto payload = payloads_.Payload(row.payload);
  if (!payload.ok()) return InvalidArgument("{}: {}", name(), MessageOf(payload.status()));
  message.data = *std::move(payload);
  if (const absl::Status fits = pubsub::CheckLimits(message); !fits.ok()) {
    return InvalidArgument("{} can't be sent: {}", name(), MessageOf(fits));
  }
  return message;
}

absl::StatusOr<pubsub::Message> SnapshotMessages::Of(const Ghost& ghost,
                                                     const std::string& at) const {
  pubsub::Message message = Common(ghost.aggregate_id, ghost.tenant_id, ghost.version, at);
  message.attributes["content_type"] = "application/json";
  message.attributes["lockstep_absent"] = "true";
  message.data = ghost.payload.dump();
  if (const absl::Status fits = pubsub::CheckLimits(message); !fits.ok()) {
    return InvalidArgument("the ghost {} can't be sent: {}", ghost.aggregate_id, MessageOf(fits));
  }
  return message;
}

}  // namespace lockstep::publisher
