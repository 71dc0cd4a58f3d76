#include "tests/sagas/chaos/storm.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/chaos/system/now.h"

namespace lockstep::sagachaos {
namespace {

constexpr Millis kFirst{1'500};
constexpr int kBurst = 40;  // sagas
// So much later the orchestrators have them; and so many seconds they can't get on.
constexpr Millis kHandsFull{600};
constexpr double kLocked = 0.9;
// A restart takes about as long before everybody is back.
constexpr Millis kRestart{3'000};

int64_t WallClock() {
  return std::chrono::duration_cast<Millis>(Clock::System().Now().time_since_epoch()).count();
}

}  // namespace

Storm::Storm(World& world, Customers& customers, uint64_t seed)
    : world_(world), customers_(customers), random_(seed ^ 0x5703), next_(chaos::Now() + kFirst) {}

void Storm::Note(const std::string& what, Millis lasts) {
  ++counts_[what];
  attacks_.push_back({WallClock(), WallClock() + lasts.count(), what});
}

void Storm::Strike() {
  const uint64_t luck = random_() % 100;
  const uint64_t pick = random_();
  if (luck < 30) {
    const Millis away(random_() % 1'500);
    Note("kill", away);
    world_.orchestrators().Kill(pick, away);
  } else if (luck < 55) {
    // Half of them for longer than a lease, so that another takes over before it goes on.
    const Millis time(300 + random_() % 6'000);
    Note("stop", time);
    world_.orchestrators().Stop(pick, time);
  } else if (luck < 72) {
    if (stops_) return;
    // Nobody gets on with what he has: his hands fill.
    lock_ = world_.server().Run(
        "shop", {"BEGIN", "LOCK TABLE shop.shelf", fmt::format("SELECT pg_sleep({})", kLocked)});
    customers_.Burst(kBurst);
    stops_ = chaos::Now() + kHandsFull;
  } else if (luck < 82) {
    Note("connections reset", Millis(0));
    world_.gate().Reset();
  } else if (luck < 91) {
    if (flows_) return;
    const Millis time(300 + random_() % 3'000);
    Note("connections stall", time);
    world_.gate().Stall();
    flows_ = chaos::Now() + time;
  } else if (luck < 96) {
    Note("Postgres restarts", kRestart);
    world_.server().RestartFast();
  } else {
    Note("Postgres crashes", kRestart);
    world_.server().RestartImmediate();
  }
}

// Two of three, for longer than their leases: the third has what they had in hand when they go on.
void Storm::StopWithFullHands() {
  const uint64_t pick = random_();
  const Millis time(World::kLease.count() + 500 + random_() % 2'500);
  Note("stop with full hands", time);
  world_.orchestrators().Stop(pick, time);
  world_.orchestrators().Stop(pick + 1, time);
}

void Storm::Tick() {
  if (flows_ && *flows_ <= chaos::Now()) {
    world_.gate().Flow();
    flows_.reset();
  }
  if (stops_ && *stops_ <= chaos::Now()) {
    stops_.reset();
    StopWithFullHands();
  }
  if (next_ > chaos::Now()) return;
  next_ = chaos::Now() + Millis(200 + random_() % 1'500);
  Strike();
}

void Storm::Calm() {
  if (flows_) world_.gate().Flow();
  flows_.reset();
  world_.orchestrators().Calm();
}

std::vector<Attack> Storm::attacks() const { return attacks_; }

}  // namespace lockstep::sagachaos
