#include "tests/chaos/system/schedule.h"

#include <algorithm>
#include <random>

namespace lockstep::chaos {
namespace {

struct Card {
  Blow blow;
  std::string_view name;
  int cards;  // in a deck
  int least_ms, most_ms;
};

// A stall or a stop between runners and Pub/Sub stays below the ack fence of the configuration
// (world.cc): an ack that is on its way for longer than that while a Seek is done is beyond what
// the fence promises (docs/reliability.md).
constexpr Card kDeck[] = {
    {Blow::kKillPublisher, "kill -9 a publisher", 7, 0, 3000},
    {Blow::kKillRunner, "kill -9 a runner", 9, 0, 3000},
    {Blow::kStopPublisher, "stop a publisher", 5, 500, 8000},
    {Blow::kStopBusyPublisher, "stop a publisher that waits for answers", 6, 5000, 8000},
    {Blow::kStopRunner, "stop a runner", 5, 500, 8000},
    {Blow::kStopEmulator, "stop Pub/Sub", 2, 200, 2000},
    {Blow::kRestartFast, "restart Postgres, fast", 2, 0, 0},
    {Blow::kRestartImmediate, "restart Postgres, immediate", 3, 0, 0},
    {Blow::kResetPublisherDatabase, "reset publishers-Postgres", 2, 0, 0},
    {Blow::kResetRunnerDatabase, "reset runners-Postgres", 3, 0, 0},
    {Blow::kResetPublisherBus, "reset publishers-Pub/Sub", 2, 0, 0},
    {Blow::kResetRunnerBus, "reset runners-Pub/Sub", 3, 0, 0},
    {Blow::kStallPublisherDatabase, "stall publishers-Postgres", 3, 300, 6000},
    {Blow::kStallRunnerDatabase, "stall runners-Postgres", 3, 300, 6000},
    {Blow::kStallPublisherBus, "stall publishers-Pub/Sub", 2, 300, 5000},
    {Blow::kStallRunnerBus, "stall runners-Pub/Sub", 2, 300, 2000},
    {Blow::kSlowFsync, "slow fsync", 2, 1000, 4000},
    {Blow::kDiskFull, "disk full", 2, 1000, 4000},
    {Blow::kOffsetReset, "offset reset", 3, 0, 0},
    {Blow::kScalePublishers, "scale publishers", 3, 0, 0},
    {Blow::kScaleRunners, "scale runners", 3, 0, 0},
    {Blow::kPoison, "poison", 7, 0, 0},
};

const Card& CardOf(Blow blow) {
  return *std::find_if(std::begin(kDeck), std::end(kDeck),
                       [&](const Card& card) { return card.blow == blow; });
}

}  // namespace

std::string_view Name(Blow blow) { return CardOf(blow).name; }

std::vector<Planned> MakeSchedule(uint64_t seed, Millis length) {
  std::mt19937_64 random(seed);
  const auto between = [&](int least, int most) {
    return static_cast<int>(random() % static_cast<uint64_t>(most - least + 1)) + least;
  };
  std::vector<Planned> schedule;
  std::vector<Blow> deck;
  for (Millis at(2000); at < length; at += Millis(between(150, 1500))) {
    if (deck.empty()) {
      for (const Card& card : kDeck) deck.insert(deck.end(), card.cards, card.blow);
      // Not std::shuffle, whose order is the library's own affair.
      for (size_t i = deck.size(); i > 1; --i) std::swap(deck[i - 1], deck[random() % i]);
    }
    const Card& card = CardOf(deck.back());
    deck.pop_back();
    schedule.push_back({at, card.blow, random(), Millis(between(card.least_ms, card.most_ms))});
  }
  return schedule;
}

}  // namespace lockstep::chaos
