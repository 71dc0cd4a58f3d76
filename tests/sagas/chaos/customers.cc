#include "tests/sagas/chaos/customers.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "platform/status.h"
#include "tests/chaos/system/now.h"
#include "tests/sagas/chaos/verdict.h"

namespace lockstep::sagachaos {
namespace {

constexpr postgres::Statement kStart{
    "start", "SELECT lockstep.saga_start('chaos', $1::jsonb, tenant => 'acme', key => $2)"};
constexpr postgres::Statement kApprove{
    "approve",
    "SELECT lockstep.saga_signal($1::uuid, 'approve', 'succeeded', '{\"by\": \"ann\"}')"};

constexpr int kSignals = 40;                // tries, half a second after one another
constexpr uint64_t kApprovalTakes = 7'000;  // milliseconds at most

}  // namespace

Customers::Customers(const World& world, CustomerOptions options)
    : world_(world), options_(options), random_(options.seed) {}

Customers::~Customers() { Stop(); }

void Customers::Start() {
  thread_ = std::thread([this] {
    Run();
    connection_.reset();
    ended_ = true;
  });
}

void Customers::Stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

Customers::Wanted Customers::Next(bool of_burst) {
  Wanted wanted{.key = fmt::format("order-{}", ++made_)};
  const auto percent = [this](uint64_t share) { return random_() % 100 < share; };
  if (percent(40)) {
    static constexpr const char* kRefusers[] = {"reserve", "charge", "pack",
                                                "label",   "ship",   "ship"};
    wanted.plan.refuse = kRefusers[random_() % std::size(kRefusers)];
  }
  wanted.plan.approve = percent(of_burst ? 80 : 15);
  wanted.signal_early = percent(of_burst ? 5 : 30);
  return wanted;
}

absl::Status Customers::StartOne(postgres::Executor& executor, Wanted& wanted) {
  const nlohmann::json input = {{"refuse", wanted.plan.refuse}, {"approve", wanted.plan.approve}};
  ASSIGN_OR_RETURN(const auto answer, executor.Execute(kStart, input.dump(), wanted.key));
  wanted.id = std::string(answer.Text(0, 0));
  return absl::OkStatus();
}

bool Customers::Connected() {
  if (connection_ != nullptr && !connection_->broken()) return true;
  auto opened = postgres::Connection::Open({.url = world_.url(), .application_name = "customer"});
  if (opened.ok()) connection_ = *std::move(opened);
  return opened.ok();
}

bool Customers::Try(std::vector<Wanted>& batch) {
  if (!Connected()) return false;
  auto transaction = connection_->Begin();
  if (!transaction.ok()) return false;
  for (Wanted& wanted : batch) {
    if (!StartOne(*transaction, wanted).ok()) return false;
    if (!wanted.plan.approve || !wanted.signal_early) continue;
    if (!transaction->Run(kApprove, wanted.id).ok()) return false;
  }
  if (batch.front().roll_back) {
    (void)transaction->Rollback();
    return true;
  }
  return transaction->Commit().ok();
}

// REQUIRES: the batch's transaction has ended as it was to.
void Customers::Keep(const std::vector<Wanted>& batch) {
  for (const Wanted& wanted : batch) {
    if (batch.front().roll_back) {
      rolled_back_.push_back(wanted.key);
      continue;
    }
    const auto [known, first] = ids_.emplace(wanted.key, wanted.id);
    if (!first) {
      if (known->second != wanted.id) {
        complaints_.push_back(
            fmt::format("{} was saga {} and is {}", wanted.key, known->second, wanted.id));
      }
      continue;
    }
    plans_[wanted.key] = wanted.plan;
    if (wanted.plan.approve && !wanted.signal_early) {
      to_approve_.push_back({wanted.id, chaos::Now() + Millis(random_() % kApprovalTakes)});
    }
    std::scoped_lock lock(mu_);
    under_way_.push_back(wanted.id);
  }
}

void Customers::SignalSome() {
  if (to_approve_.empty() || !Connected()) return;
  std::vector<Approval> waiting;
  for (Approval& one : std::exchange(to_approve_, {})) {
    // Again and again until it is known to have been taken: it may be signalled twice.
    if (one.due <= chaos::Now()) {
      if (connection_->Run(kApprove, one.id).ok()) continue;
      if (++one.failed == kSignals) {
        complaints_.push_back(fmt::format("{} can't be signalled", one.id));
        continue;
      }
      one.due = chaos::Now() + Millis(500);
    }
    waiting.push_back(std::move(one));
  }
  to_approve_ = std::move(waiting);
}

void Customers::Run() {
  const SteadyTime began = chaos::Now();
  while (!stop_ && (made_ < options_.sagas || !to_approve_.empty())) {
    std::this_thread::sleep_for(Millis(40));
    const auto due =
        std::chrono::duration_cast<Millis>(chaos::Now() - began).count() * options_.rate / 1000 +
        burst_;
    while (!stop_ && made_ < options_.sagas && made_ < due) {
      std::vector<Wanted> batch;
      for (uint64_t i = 0; i <= random_() % 4 && made_ < options_.sagas; ++i) {
        batch.push_back(Next(given_ < burst_));
        given_ = std::min<int64_t>(given_ + 1, burst_);
      }
      batch.front().roll_back = random_() % 30 == 0;
      while (!stop_ && !Try(batch)) {
        ++asked_again_;
        std::this_thread::sleep_for(Millis(50));
      }
      Keep(batch);
      if (random_() % 20 == 0 && Try(batch)) Keep(batch);  // for no reason
      started_ = static_cast<int>(plans_.size());
    }
    SignalSome();
  }
}

std::vector<std::string> Customers::TakeSome() {
  std::scoped_lock lock(mu_);
  return std::exchange(under_way_, {});
}

}  // namespace lockstep::sagachaos
