#pragma once

#include "envelope/received.h"
#include "postgres/params.h"
#include "postgres/result.h"

namespace lockstep::state {

// A whole message as columns, the way in which parked events and dead letters are kept.
struct MessageColumns {
  postgres::Array message_id, ordering_key, publish_time, attributes, payload;

  void Add(const envelope::Received& message);
};

// Back again, and its attributes read. REQUIRES: the row has the columns above.
envelope::Received ReadMessage(const postgres::Row& row);

}  // namespace lockstep::state
