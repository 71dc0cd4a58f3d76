#include "tests/chaos/system/adoption.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "platform/duration.h"
#include "postgres/connection.h"
#include "tests/chaos/system/now.h"

namespace lockstep::chaos {
namespace {

constexpr Millis kLook{300};
constexpr Millis kTick{20};
constexpr Millis kCommandLimit{60'000};
constexpr Millis kVerifyLimit{180'000};

constexpr Millis kBetween{2'000};
// How long a runner's look may take, and how long a replica may lack what a failover has lost.
constexpr Millis kRunnersLook{150'000};
constexpr Millis kSetBack{60'000};
constexpr char kCompared[] = "a read model was compared with its source";
constexpr char kDiffer[] = "rows of the read model differ from their source";

constexpr char kNewest[] =
    "SELECT state, (declaration ->> 'schema_version')::int FROM lockstep.backfills "
    "ORDER BY 2 DESC LIMIT 1";  // the clock may have been wrong

}  // namespace

void Adoption::Do(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--database", world_.source_url(), "backfill"});
  command_ = world_.Control(std::move(arguments), {.log = "backfills.log"});
  limit_ = Now() + kCommandLimit;
}

void Adoption::Pause(Millis time) {
  pause_wanted_ = true;
  pause_until_ = Now() + time;
}

void Adoption::Tick() {
  if (command_ != nullptr) {
    if (!command_->Ended() && Now() < limit_) return;
    command_.reset();  // the next look says what became of it
    next_look_ = Now();
  }
  if (Now() < next_look_ || world_.source_server().hangs()) return;
  next_look_ = Now() + kLook;
  Look();
}

void Adoption::Look() {
  const auto connection = postgres::Connection::Open({.url = world_.source_url(),
                                                      .application_name = "chaos",
                                                      .connect_timeout = Millis(1'000),
                                                      .statement_timeout = Millis(1'000)});
  if (!connection.ok()) return;
  const auto newest = (*connection)->Execute(kNewest);
  if (!newest.ok()) return;
  const std::string state(newest->empty() ? "cancelled" : newest->Text(0, 0));
  started_ = newest->empty() ? 0 : static_cast<int>(newest->Int(0, 1));
  ended_ = state == "done" || state == "cancelled";
  if (state == "done") done_.insert(started_);
  const std::string& name = World::kBackfill;
  if (ended_) {
    pause_wanted_ = false;
    if (!last_) Do({"start", world_.WriteDeclaration(started_ + 1), "--yes", "--reason", "chaos"});
  } else if (state == "failed") {
    ++failed_;
    Do({"resume", name, "--yes", "--reason", "chaos: it has failed"});
  } else if (state == "paused") {
    if (Now() >= pause_until_) Do({"resume", name, "--yes", "--reason", "chaos"});
  } else if (std::exchange(pause_wanted_, false)) {
    ++paused_;
    Do({"pause", name, "--yes", "--reason", "chaos"});
  }
}

void Adoption::Finish(Millis limit) {
  const SteadyTime until = Now() + limit;
  // Twice: to the end of the one under way, and to that of another, which sees all that there is.
  for (const bool last : {true, false}) {
    last_ = last;
    const int before = started_;
    do {
      world_.Tick();
      Tick();
      std::this_thread::sleep_for(kTick);
      if (!last && started_ > before) last_ = true;
      if (Now() > until) return;
    } while (command_ != nullptr || !ended_ || (!last && started_ == before));
  }
  finished_ = done_.contains(started_);
}

void Inspector::NoteFailover() {
  if (!world_.feed_servers().failing()) return;
  const WallTime now = Clock::System().Now();
  if (failing_.empty() || now - failing_.back() > std::chrono::seconds(1)) failing_.push_back(now);
}

void Inspector::Tick() {
  NoteFailover();
  if (command_ == nullptr) return;
  const auto ended = command_->Ended();
  if (!ended && Now() < limit_) return;
  End(ended.value_or(-SIGKILL));
  command_.reset();
  next_ = Now() + kBetween;
}

void Inspector::Begin() {
  if (command_ != nullptr || Now() < next_) return;
  if (!first_) first_ = Clock::System().Now();
  const std::string group = World::kInspected[number_++ % std::size(World::kInspected)];
  log_ = fmt::format("verify-{}.log", number_);
  command_ = world_.BeginVerify(group, {"--grace", World::kGrace, "--wait", "60s"}, {.log = log_});
  limit_ = Now() + kVerifyLimit;
  failing_before_ = failing_.size();
}

void Inspector::End(int status) {
  if (status == 0) {
    ++equal_;
  } else if (status == 2) {
    ++untold_;
  } else if (status == 1 && failing_.size() > failing_before_) {
    ++excused_;
  } else {
    alarms_.push_back(fmt::format("status {}, see {}", status, log_));
  }
}

void Inspector::Finish() {
  while (command_ != nullptr) {
    world_.Tick();
    std::this_thread::sleep_for(kTick);
    Tick();
  }
  for (const auto& entry : std::filesystem::directory_iterator(world_.File(""))) {
    const std::string name = entry.path().filename();
    if (name.starts_with("lockstep-runner")) ReadRunnersLog(name);
  }
}

void Inspector::ReadRunnersLog(const std::string& name) {
  std::ifstream file(world_.File(name));
  for (std::string line; std::getline(file, line);) {
    if (line.find(kCompared) != std::string::npos) ++by_runners_;
    if (line.find(kDiffer) == std::string::npos) continue;
    const auto at = ParseTimestamp(line.substr(3, line.find(' ') - 3));  // ts=…
    const bool adopted = first_ && at.ok() && *at > *first_ + kRunnersLook;
    const bool set_back =
        at.ok() && std::any_of(failing_.begin(), failing_.end(), [&](WallTime failing) {
          return *at > failing && *at < failing + kSetBack;
        });
    if (!adopted) continue;
    if (set_back) {
      ++excused_;
    } else {
      alarms_.push_back(fmt::format("{}: {}", name, line));
    }
  }
}

}  // namespace lockstep::chaos
