#pragma once

#include "postgres/connection.h"
#include "postgres/params.h"
#include "runner/message/inbound.h"

namespace lockstep::runner {

// A whole message as columns, the way in which parked events and dead letters are kept.
struct MessageColumns {
  postgres::Array message_id, ordering_key, publish_time, attributes, payload;

  void Add(const Inbound& item);
};

// Back again, parsed, from columns in the order above starting at `first`.
Inbound ReadMessage(const postgres::Result& rows, int row, int first);

std::string AttributesJson(const Attributes& attributes);

}  // namespace lockstep::runner
