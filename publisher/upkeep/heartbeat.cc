#include "publisher/upkeep/heartbeat.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "platform/log/fault.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "postgres/identifier.h"
#include "publisher/dispatch/wire.h"
#include "publisher/outbox/outbox_rows.h"

namespace lockstep::publisher {
namespace {

// A topic may get a schema later.
constexpr Millis kLookAgain{300'000};

}  // namespace

Heartbeat::Heartbeat(HeartbeatOptions options, std::string database, std::vector<Relay*> relays,
                     pubsub::Publisher& publisher, pubsub::Admin& admin,
                     std::function<std::string(const std::string&)> topic)
    : options_(std::move(options)),
      database_(std::move(database)),
      relays_(std::move(relays)),
      publisher_(publisher),
      admin_(admin),
      topic_(std::move(topic)),
      ticker_(options_.interval, [this] {
        if (const absl::Status beat = Beat(); !beat.ok()) {
          log::Fault("no heartbeat was sent", {{"error", beat}});
        }
      }) {}

absl::Status Heartbeat::Beat() {
  std::unique_ptr<postgres::Connection> connection;
  for (const Relay* relay : relays_) {
    if (!relay->OwnsFirstShard() || !relay->health().ok()) continue;
    if (connection == nullptr) {
      ASSIGN_OR_RETURN(connection,
                       postgres::Connection::Open(
                           {.url = database_, .application_name = "lockstep-publisher heartbeat"}));
    }
    ASSIGN_OR_RETURN(const auto table, postgres::QualifiedName::Parse(relay->options().table));
    ASSIGN_OR_RETURN(const int64_t position, NewestSequence(*connection, table));
    for (const std::string& topic : options_.topics) {
      if (Allowed(topic)) Send(topic, position);
    }
  }
  return absl::OkStatus();
}

void Heartbeat::Send(const std::string& topic, int64_t position) {
  publisher_.Publish(
      topic_(topic), {HeartbeatMessage(fmt::format("{}", position))},
      [topic](const std::vector<absl::StatusOr<MessageId>>& answers) {
        if (answers.empty() || answers[0].ok()) return;
        log::Fault("the heartbeat was refused", {{"topic", topic}, {"error", answers[0].status()}});
      });
}

bool Heartbeat::Allowed(const std::string& topic) {
  Look& look = looks_[topic];
  const SteadyTime now = Clock::System().Steady();
  if (look.known && now - look.at < kLookAgain) return look.allowed;
  const auto found = admin_.GetTopic(topic_(topic));
  if (!found.ok() && !absl::IsPermissionDenied(found.status())) {
    log::Fault("no heartbeat was sent: its topic can't be looked at",
               {{"topic", topic}, {"error", found.status()}});
    return false;
  }
  // roles/pubsub.publisher may not look; Pub/Sub itself then refuses what does not fit a schema.
  const bool allowed = !found.ok() || found->schema.schema.empty();
  if (!allowed && (look.allowed || !look.known)) {
    log::Error(
        "heartbeats are refused on a topic with a schema: take it out of heartbeat.topics, or give "
        "the events a topic without one",
        {{"topic", topic}, {"pubsub_topic", found->name}, {"schema", found->schema.schema}});
  }
  look = {true, allowed, now};
  return allowed;
}

}  // namespace lockstep::publisher
