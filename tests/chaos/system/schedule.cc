#include "tests/chaos/system/schedule.h"

#include <algorithm>
#include <random>
#include <utility>

namespace lockstep::chaos {
namespace {

struct Card {
  Fault fault;
  std::string_view name;
  int cards;  // in a deck
  int least_ms, most_ms;
};

// A stall or a stop between runners and Pub/Sub stays below the ack fence of the configuration
// (world.cc): an ack that is on its way for longer than that while a Seek is done is beyond what
// the fence promises (docs/reliability.md).
constexpr Card kDeck[] = {
    {Fault::kKillPublisher, "kill -9 a publisher", 7, 0, 3000},
    {Fault::kKillRunner, "kill -9 a runner", 9, 0, 3000},
    {Fault::kStopPublisher, "stop a publisher", 5, 500, 8000},
    {Fault::kStopBusyPublisher, "stop a publisher that waits for answers", 6, 5000, 8000},
    {Fault::kStopRunner, "stop a runner", 5, 500, 8000},
    {Fault::kStopEmulator, "stop Pub/Sub", 2, 200, 2000},
    {Fault::kRestartFast, "restart Postgres, fast", 2, 0, 0},
    {Fault::kRestartImmediate, "restart Postgres, immediate", 3, 0, 0},
    {Fault::kResetPublisherDatabase, "reset publishers-Postgres", 2, 0, 0},
    {Fault::kResetRunnerDatabase, "reset runners-Postgres", 3, 0, 0},
    {Fault::kResetPublisherBus, "reset publishers-Pub/Sub", 2, 0, 0},
    {Fault::kResetRunnerBus, "reset runners-Pub/Sub", 3, 0, 0},
    {Fault::kStallPublisherDatabase, "stall publishers-Postgres", 3, 300, 6000},
    {Fault::kStallRunnerDatabase, "stall runners-Postgres", 3, 300, 6000},
    {Fault::kStallPublisherBus, "stall publishers-Pub/Sub", 2, 300, 5000},
    {Fault::kStallRunnerBus, "stall runners-Pub/Sub", 2, 300, 2000},
    {Fault::kSlowFsync, "slow fsync", 2, 1000, 4000},
    {Fault::kDiskFull, "disk full", 2, 1000, 4000},
    {Fault::kFailover, "fail over to a standby that lags", 1, 1000, 5000},
    {Fault::kClockJump, "set Postgres' clock an hour wrong", 3, 1000, 8000},
    {Fault::kHangPostgres, "hang Postgres", 2, 5000, 12'000},
    {Fault::kHangPostgresAndEndPublisher, "hang Postgres, SIGTERM a publisher", 1, 12'000, 14'000},
    {Fault::kRefuseInternal, "refuse every Publish: INTERNAL", 1, 4000, 7000},
    {Fault::kRefuseUnknown, "refuse every Publish: UNKNOWN", 1, 4000, 7000},
    {Fault::kRefuseFailedPrecondition, "refuse every Publish: FAILED_PRECONDITION", 1, 4000, 7000},
    {Fault::kRefuseUnimplemented, "refuse every Publish: UNIMPLEMENTED", 1, 4000, 7000},
    {Fault::kRefuseInvalidArgument, "refuse every Publish: INVALID_ARGUMENT", 1, 4000, 7000},
    {Fault::kRefusePermissionDenied, "refuse every Publish: PERMISSION_DENIED", 1, 2000, 5000},
    {Fault::kRefuseResourceExhausted, "refuse every Publish: RESOURCE_EXHAUSTED", 1, 2000, 5000},
    {Fault::kLockReadModel, "lock a table of the consumer", 3, 8000, 14'000},
    {Fault::kLockOutbox, "lock the outbox", 1, 2000, 8000},
    {Fault::kOffsetReset, "offset reset", 4, 0, 0},
    {Fault::kConsumerHangs, "the HTTP consumer hangs", 3, 1000, 5000},
    {Fault::kConsumerFails, "the HTTP consumer answers 500", 3, 1000, 4000},
    {Fault::kConsumerIsAway, "the HTTP consumer answers 503", 2, 1000, 4000},
    {Fault::kConsumerHasEnough, "the HTTP consumer answers 429", 3, 1000, 4000},
    {Fault::kConsumerTruncates, "the HTTP consumer cuts its answers off", 3, 1000, 4000},
    {Fault::kConsumerRefusesConnections, "the HTTP consumer refuses connections", 3, 0, 3000},
    {Fault::kStopConsumer, "stop the HTTP consumer", 3, 500, 6000},
    {Fault::kPauseBackfill, "pause a backfill", 3, 0, 3000},
    {Fault::kScalePublishers, "scale publishers", 3, 0, 0},
    {Fault::kScaleRunners, "scale runners", 3, 0, 0},
    {Fault::kPoison, "poison", 7, 0, 0},
};

// Whoever compares two databases needs both, and runners that stay, for more than twice verify's
// grace: in the second half of every three minutes nothing takes them away.
bool IsCalm(Millis at) { return at % Millis(180'000) >= Millis(90'000); }
bool BelongsToTheStorm(Fault fault) {
  switch (fault) {
    case Fault::kKillRunner:
    case Fault::kStopRunner:
    case Fault::kScaleRunners:
    case Fault::kRestartFast:
    case Fault::kRestartImmediate:
    case Fault::kDiskFull:
    case Fault::kFailover:
    case Fault::kClockJump:
    case Fault::kHangPostgres:
    case Fault::kHangPostgresAndEndPublisher:
    case Fault::kLockReadModel:
      return true;
    default:
      return false;
  }
}

const Card& CardOf(Fault fault) {
  return *std::find_if(std::begin(kDeck), std::end(kDeck),
                       [&](const Card& card) { return card.fault == fault; });
}

}  // namespace

std::string_view Name(Fault fault) { return CardOf(fault).name; }

std::vector<Planned> MakeSchedule(uint64_t seed, Millis length) {
  std::mt19937_64 random(seed);
  const auto between = [&](int least, int most) {
    return static_cast<int>(random() % static_cast<uint64_t>(most - least + 1)) + least;
  };
  std::vector<Planned> schedule;
  std::vector<Fault> deck;
  // Not std::shuffle, whose order is the library's own affair.
  const auto add = [&](std::vector<Fault> cards) {
    for (size_t i = cards.size(); i > 1; --i) std::swap(cards[i - 1], cards[random() % i]);
    deck.insert(deck.end(), cards.begin(), cards.end());
  };
  for (Millis at(2000); at < length; at += Millis(between(150, 1200))) {
    if (deck.empty()) {
      std::vector<Fault> upper, lower;
      for (const Card& card : kDeck) {
        const int above = (card.cards + 1) / 2;
        upper.insert(upper.end(), above, card.fault);
        lower.insert(lower.end(), card.cards - above, card.fault);
      }
      add(std::move(lower));
      add(std::move(upper));
    }
    auto next = deck.end() - 1;
    while (IsCalm(at) && BelongsToTheStorm(*next) && next != deck.begin()) --next;
    if (IsCalm(at) && BelongsToTheStorm(*next)) continue;  // all that is left
    const Card& card = CardOf(*next);
    deck.erase(next);
    schedule.push_back({at, card.fault, random(), Millis(between(card.least_ms, card.most_ms))});
  }
  return schedule;
}

}  // namespace lockstep::chaos
