#include "tests/chaos/system/schedule.h"

#include <algorithm>
#include <random>

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
    {Fault::kOffsetReset, "offset reset", 3, 0, 0},
    {Fault::kScalePublishers, "scale publishers", 3, 0, 0},
    {Fault::kScaleRunners, "scale runners", 3, 0, 0},
    {Fault::kPoison, "poison", 7, 0, 0},
};

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
  for (Millis at(2000); at < length; at += Millis(between(150, 1500))) {
    if (deck.empty()) {
      for (const Card& card : kDeck) deck.insert(deck.end(), card.cards, card.fault);
      // Not std::shuffle, whose order is the library's own affair.
      for (size_t i = deck.size(); i > 1; --i) std::swap(deck[i - 1], deck[random() % i]);
    }
    const Card& card = CardOf(deck.back());
    deck.pop_back();
    schedule.push_back({at, card.fault, random(), Millis(between(card.least_ms, card.most_ms))});
  }
  return schedule;
}

}  // namespace lockstep::chaos
