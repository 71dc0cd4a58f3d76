#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "platform/clock.h"

namespace lockstep::chaos {

// What can go wrong.
enum class Fault {
  kKillPublisher,
  kKillRunner,
  kStopPublisher,      // SIGSTOP, later SIGCONT
  kStopBusyPublisher,  // while the bus owes it answers
  kStopRunner,
  kStopEmulator,
  kRestartFast,  // of Postgres
  kRestartImmediate,
  kResetPublisherDatabase,  // TCP resets, at one of the four gates
  kResetRunnerDatabase,
  kResetPublisherBus,
  kResetRunnerBus,
  kStallPublisherDatabase,
  kStallRunnerDatabase,
  kStallPublisherBus,
  kStallRunnerBus,
  kSlowFsync,
  kDiskFull,
  kFailover,      // to a standby of the consumer's database that lacks the last commits
  kClockJump,     // of Postgres, an hour ahead or back
  kHangPostgres,  // SIGSTOP of its sessions, later SIGCONT
  kHangPostgresAndEndPublisher,  // which must not wait for it
  kRefuseInternal,               // every Publish, with that code
  kRefuseUnknown,
  kRefuseFailedPrecondition,
  kRefuseUnimplemented,
  kRefuseInvalidArgument,
  kRefusePermissionDenied,
  kRefuseResourceExhausted,
  kLockReadModel,  // ACCESS EXCLUSIVE, as ALTER TABLE takes it
  kLockOutbox,
  kOffsetReset,
  kConsumerHangs,      // the HTTP consumer
  kConsumerFails,      // 500
  kConsumerIsAway,     // 503
  kConsumerHasEnough,  // 429, with Retry-After
  kConsumerTruncates,
  kConsumerRefusesConnections,
  kStopConsumer,   // SIGSTOP, later SIGCONT
  kPauseBackfill,  // and later resume
  kScalePublishers,
  kScaleRunners,
  kPoison,
  kCount
};
std::string_view Name(Fault fault);

struct Planned {
  Millis at;  // since the beginning
  Fault fault;
  uint64_t pick;  // whom it hits, or which kind of it
  Millis lasts;   // for those that last
};

// The faults of a run: the same for the same seed and length, whatever happens meanwhile. They come
// as from a shuffled deck whose upper part has at least one of each kind, so that a minute meets
// all.
std::vector<Planned> MakeSchedule(uint64_t seed, Millis length);

}  // namespace lockstep::chaos
