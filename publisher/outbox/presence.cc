#include "publisher/outbox/presence.h"

#include "platform/duration.h"
#include "platform/status.h"
#include "platform/version.h"

namespace lockstep::publisher {
namespace {

constexpr std::string_view kAnnounce = R"(
WITH gone AS (DELETE FROM lockstep.publishers
               WHERE seen_at < now() - interval '1 hour' AND instance <> $1)
INSERT INTO lockstep.publishers AS p (instance, address, version, outboxes, started_at)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (instance) DO UPDATE
   SET address = EXCLUDED.address, version = EXCLUDED.version, outboxes = EXCLUDED.outboxes,
       started_at = EXCLUDED.started_at, seen_at = now())";

constexpr std::string_view kRunning = R"(
SELECT instance, address, version, to_json(outboxes)::text AS outboxes, started_at, seen_at
  FROM lockstep.publishers
 WHERE seen_at > now() - interval '1 hour'
 ORDER BY started_at DESC, instance
 LIMIT 100)";

}  // namespace

absl::Status Announce(postgres::Connection& connection, const Presence& presence) {
  postgres::Array outboxes;
  for (const std::string& outbox : presence.outboxes) outboxes.Add(outbox);
  return connection.Run(kAnnounce, presence.instance, presence.address, std::string(kVersion),
                        outboxes, presence.started_at);
}

absl::Status Leave(postgres::Connection& connection, const std::string& instance) {
  return connection.Run("DELETE FROM lockstep.publishers WHERE instance = $1", instance);
}

absl::StatusOr<nlohmann::json> ListPublishers(postgres::Connection& connection) {
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(kRunning));
  nlohmann::json publishers = nlohmann::json::array();
  for (const postgres::Row row : rows) {
    publishers.push_back({{"instance", row.Text("instance")},
                          {"address", row.Text("address")},
                          {"version", row.Text("version")},
                          {"outboxes", nlohmann::json::parse(row.Text("outboxes"))},
                          {"started_at", FormatTimestamp(row.Time("started_at"))},
                          {"seen_at", FormatTimestamp(row.Time("seen_at"))}});
  }
  return publishers;
}

}  // namespace lockstep::publisher
