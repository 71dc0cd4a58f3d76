#pragma once

#include "platform/clock.h"

// How long an old epoch can still be heard of. A Seek under a new epoch waits for all of it, so
// that no ack sent late takes away what the Seek has brought back. The service promises as much; a
// reset does not lean on that alone.
namespace lockstep::offsets {

// An ack is sent only so long after its transaction began to commit; later it is dropped, and the
// message comes again for the inbox to absorb. The same holds for a Seek after its claim.
inline constexpr Millis kAckFence{5'000};
// What was sent by then is taken or given up within the same time again (the receiver's
// ack_timeout): a Seek waits for both.
inline constexpr Millis kSeekFence = 2 * kAckFence;
// A claimed Seek, with all of its tries, has ended by then or never will.
inline constexpr Millis kSeekTakeover{45'000};

}  // namespace lockstep::offsets
