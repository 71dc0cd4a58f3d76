#include "emulator/core/ack_id.h"

#include "fuzz/fuzz_target.h"

using lockstep::emulator::AckId;

// An ack id that a client sends: none of ours, or one that is written the same way.
LOCKSTEP_FUZZ_TARGET(ack_id) {
  const auto id = AckId::Parse(input);
  if (id.has_value()) LOCKSTEP_HOLDS(id->Text() == input);
}
