#include "tests/chaos/system/pair.h"

#include <stdexcept>
#include <thread>
#include <utility>

namespace lockstep::chaos {
namespace {

constexpr Millis kAgain{500};
constexpr Millis kTooLong{90'000};
// So long what was committed before the order still gets there.
constexpr Millis kArrives{500};

SteadyTime Moment() { return Clock::System().Steady(); }

}  // namespace

Pair::Pair(const std::string& folder, const std::string& bad_machine)
    : primary_(std::make_unique<Cluster>(folder, bad_machine)),
      standby_(std::make_unique<Cluster>(folder + "_standby", bad_machine)),
      replication_(std::make_unique<Gate>(primary_->port())) {
  primary_->Make();
  primary_->Start();
}

void Pair::Copy() {
  state_ = State::kCopying;
  replication_->Retarget(primary_->port());
  copy_ = standby_->Copy(replication_->port());
}

void Pair::Follow() {
  Copy();
  if (copy_->WaitFor(Millis(60'000)) != 0) throw std::runtime_error("no standby could be made");
  Tick();
}

void Pair::FailOver(Millis lag) {
  state_ = State::kFailing;
  failing_ = Moment();
  next_ = Moment() + kArrives;
  lag_ = lag;
}

void Pair::Tick() {
  if (state_ != State::kCrashing) primary_->Tick();
  switch (state_) {
    case State::kCopying: {
      const auto ended = copy_ == nullptr ? std::optional(-1) : copy_->Ended();
      if (!ended) return;
      if (*ended == 0) {
        copy_.reset();
        standby_->Start();
        state_ = State::kFollowing;
      } else if (copy_ != nullptr) {  // a fault came between
        copy_.reset();
        next_ = Moment() + kAgain;
      } else if (Moment() >= next_) {
        Copy();
      }
      return;
    }
    case State::kFollowing:
      return standby_->Tick();
    case State::kFailing:
      standby_->Tick();
      if (Moment() < next_) return;
      replication_->Stall();
      state_ = State::kLagging;
      next_ = Moment() + lag_;
      return;
    case State::kLagging:
      standby_->Tick();
      if (Moment() < next_) return;
      primary_->Crash();
      state_ = State::kCrashing;
      return;
    case State::kCrashing:
      standby_->Tick();
      if (!primary_->Gone()) return;
      // What the standby was not sent is lost with the primary.
      replication_->Reset();
      replication_->Flow();
      std::swap(primary_, standby_);
      state_ = State::kPromoting;
      next_ = {};
      return;
    case State::kPromoting:
      if (primary_->Promoted()) {
        ++failovers_;
        on_failover_(primary_->port());
        Copy();
      } else if (Moment() >= failing_ + kTooLong) {
        throw std::runtime_error("the standby does not become a primary");
      } else if (Moment() >= next_) {
        primary_->Promote();  // again, should a fault have undone the order
        next_ = Moment() + Millis(2'000);
      }
      return;
  }
}

bool Pair::StopForGood(Millis limit) {
  copy_.reset();
  // The primary waits until its standby has everything.
  const bool primary = primary_->StopForGood(limit);
  return standby_->StopForGood(limit) && primary;
}

}  // namespace lockstep::chaos
