#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "envelope/attributes.h"
#include "publisher/outbox/outbox_row.h"
#include "pubsub/message.h"

namespace lockstep::publisher {

// What a row says of its event, as docs/wire.md describes it. Fails when the row's own attributes
// are no JSON object of strings.
absl::StatusOr<Attributes> AttributesOf(const OutboxRow& row);

// The message of a row, as docs/wire.md describes it. Fails when the row's own attributes are no
// JSON object of strings, or when Pub/Sub would refuse the message.
absl::StatusOr<pubsub::Message> ToMessage(const OutboxRow& row);

// A control message without ordering key: the publisher's position in each outbox.
pubsub::Message HeartbeatMessage(const std::string& position);

}  // namespace lockstep::publisher
