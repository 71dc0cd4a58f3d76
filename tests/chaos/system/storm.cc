#include "tests/chaos/system/storm.h"

#include <fmt/format.h>

#include <csignal>
#include <iterator>
#include <thread>

#include "platform/duration.h"
#include "postgres/connection.h"
#include "tests/chaos/system/now.h"

namespace lockstep::chaos {
namespace {

constexpr Millis kTick{20};
constexpr Millis kResetLimit{90'000};

constexpr char kGeneration[] =
    "SELECT s.generation FROM feed_state.consumer_groups g JOIN feed_state.slots s "
    "ON s.group_name = g.group_name AND s.slot = g.active_slot WHERE g.group_name = 'feed'";
constexpr char kMissing[] =
    "SELECT count(*) FROM unnest($1::uuid[]) AS e(id) WHERE NOT EXISTS "
    "(SELECT 1 FROM feed_state.inbox i WHERE i.generation = $2 AND i.event_id = e.id)";

constexpr Millis kHandsFull{400};
// Statements wait for the server that hangs.
constexpr Millis kInTheMiddle{500};
constexpr Millis kPostponed{300};
// A process gives up what it can't finish after 10 s; the rest is for a busy machine.
constexpr Millis kEndsWithin{14'000};

// Every batch of its group writes to it.
constexpr const char* kLocked[] = {"read.feed_item",    "read.feed_total",   "read.steady_item",
                                   "read.steady_total", "read.latest_item",  "read.latest_total",
                                   "read.called_item",  "read.called_total", "feed_state.inbox",
                                   "feed_state.offsets"};

}  // namespace

Storm::Storm(World& world, Source& source, const Ledger& ledger, Adoption& adoption,
             Inspector& inspector)
    : world_(world), source_(source), ledger_(ledger), adoption_(adoption), inspector_(inspector) {}

Storm::~Storm() = default;

void Storm::Run(const std::vector<Planned>& schedule, Millis length) {
  const SteadyTime began = Now();
  for (const Planned& planned : schedule) {
    while (Now() < began + planned.at) Tick();
    Strike(planned);
  }
  while (Now() < began + length) Tick();
  over_ = true;
  for (const auto& ending : std::exchange(endings_, {})) ending.second();
  world_.Calm();
  while (reset_ != nullptr || !locks_.empty() || world_.feed_servers().failing()) Tick();
}

void Storm::Tick() {
  for (size_t i = 0; i < endings_.size();) {
    if (endings_[i].first > Now()) {
      ++i;
      continue;
    }
    const auto end = std::move(endings_[i].second);
    endings_.erase(endings_.begin() + static_cast<std::ptrdiff_t>(i));
    end();
  }
  world_.Tick();
  ReapReset();
  TickLocks();
  adoption_.Tick();
  inspector_.Tick();
  if (!over_ && !adoption_.done().empty()) inspector_.Begin();
  std::this_thread::sleep_for(kTick);
}

void Storm::Last(Gate& gate, Millis time) {
  gate.Stall();
  endings_.emplace_back(Now() + time, [&gate] { gate.Flow(); });
}

void Storm::Strike(const Planned& planned) {
  Pair& pair = world_.feed_servers();
  if (planned.fault == Fault::kFailover && (pair.failing() || !world_.ReadyForFailover())) {
    endings_.emplace_back(Now() + kPostponed, [this, planned] {
      if (!over_) Strike(planned);
    });
    return;
  }
  ++injected_[planned.fault];
  Note(planned);
  const auto later = [&](std::function<void()> end) {
    endings_.emplace_back(Now() + planned.lasts, std::move(end));
  };
  Cluster& cluster = world_.ServerOf(planned.pick % 2 == 0 ? "shop" : "feed");
  switch (planned.fault) {
    case Fault::kKillPublisher:
      return world_.publishers().Kill(planned.pick, planned.lasts);
    case Fault::kKillRunner:
      return world_.runners().Kill(planned.pick, planned.lasts);
    case Fault::kStopPublisher:
      return world_.publishers().Stop(planned.pick, planned.lasts);
    case Fault::kStopBusyPublisher:
      // Its answers lie there when it wakes, and another has its rows by then.
      if (world_.publishers().size() == 1) world_.publishers().Scale(0);
      world_.publisher_bus().Stall();
      endings_.emplace_back(Now() + kHandsFull, [this, planned] {
        world_.publishers().Stop(planned.pick, planned.lasts);
        world_.publisher_bus().Flow();
      });
      return;
    case Fault::kStopRunner:
      return world_.runners().Stop(planned.pick, planned.lasts);
    case Fault::kStopEmulator:
      world_.emulator().Signal(SIGSTOP);
      return later([this] { world_.emulator().Signal(SIGCONT); });
    case Fault::kRestartFast:
      return cluster.RestartFast();
    case Fault::kRestartImmediate:
      return cluster.RestartImmediate();
    case Fault::kResetPublisherDatabase:
      return world_.publisher_database().Reset();
    case Fault::kResetRunnerDatabase:
      return world_.runner_database().Reset();
    case Fault::kResetPublisherBus:
      return world_.publisher_bus().Reset();
    case Fault::kResetRunnerBus:
      return world_.runner_bus().Reset();
    case Fault::kStallPublisherDatabase:
      return Last(world_.publisher_database(), planned.lasts);
    case Fault::kStallRunnerDatabase:
      return Last(world_.runner_database(), planned.lasts);
    case Fault::kStallPublisherBus:
      return Last(world_.publisher_bus(), planned.lasts);
    case Fault::kStallRunnerBus:
      return Last(world_.runner_bus(), planned.lasts);
    case Fault::kSlowFsync:
      cluster.SlowFsync(true);
      return later([&cluster] { cluster.SlowFsync(false); });
    case Fault::kDiskFull:
      cluster.DiskFull(true);
      return later([&cluster] { cluster.DiskFull(false); });
    case Fault::kFailover:
      return pair.FailOver(planned.lasts);
    case Fault::kClockJump:
      cluster.SetClock(std::chrono::hours(planned.pick % 4 < 2 ? 1 : -1));
      return later([&cluster] { cluster.SetClock(std::chrono::seconds(0)); });
    case Fault::kHangPostgres:
      cluster.Stop(planned.pick % 4 < 2 ? Cluster::Hang::kAll : Cluster::Hang::kSome);
      return later([&cluster] { cluster.Resume(); });
    case Fault::kHangPostgresAndEndPublisher:
      world_.source_server().Stop(Cluster::Hang::kAll);
      endings_.emplace_back(Now() + kInTheMiddle, [this, planned] {
        world_.publishers().End(planned.pick, kEndsWithin);
      });
      return later([this] {
        world_.source_server().Resume();
        if (world_.publishers().size() < 2) world_.publishers().Start(1);
      });
    case Fault::kRefuseInternal:
    case Fault::kRefuseUnknown:
    case Fault::kRefuseFailedPrecondition:
    case Fault::kRefuseUnimplemented:
    case Fault::kRefuseInvalidArgument:
    case Fault::kRefusePermissionDenied:
    case Fault::kRefuseResourceExhausted: {
      // The code is the last word of its name. Where two meet, the later one counts.
      const std::string_view name = Name(planned.fault);
      world_.RefusePublish(std::string(name.substr(name.rfind(' ') + 1)));
      ++refusals_;
      return later([this] {
        if (--refusals_ == 0) world_.RefusePublish("");
      });
    }
    case Fault::kLockReadModel:
      return Lock("feed", kLocked[planned.pick % std::size(kLocked)], planned.lasts);
    case Fault::kLockOutbox:
      return Lock("shop", World::kOutbox, planned.lasts);
    case Fault::kOffsetReset:
      return Reset(planned.pick);
    case Fault::kConsumerHangs:
      return Consumer("hang", planned.lasts);
    case Fault::kConsumerFails:
      return Consumer("500", planned.lasts);
    case Fault::kConsumerIsAway:
      return Consumer("503", planned.lasts);
    case Fault::kConsumerHasEnough:
      return Consumer("429", planned.lasts);
    case Fault::kConsumerTruncates:
      return Consumer("cut", planned.lasts);
    case Fault::kConsumerRefusesConnections:
      return Consumer("refuse", planned.lasts);
    case Fault::kStopConsumer:
      world_.consumer().Signal(SIGSTOP);
      return later([this] { world_.consumer().Signal(SIGCONT); });
    case Fault::kPauseBackfill:
      return adoption_.Pause(planned.lasts);
    case Fault::kScalePublishers:
      return world_.publishers().Scale(planned.pick);
    case Fault::kScaleRunners:
      return world_.runners().Scale(planned.pick);
    case Fault::kPoison:
      return source_.AddPoison();
    case Fault::kCount:
      return;
  }
}

// What can make a runner call again.
void Storm::Note(const Planned& planned) {
  constexpr Millis kStarts{10'000};
  const auto note = [&](Blow::To to, Millis more) {
    blows_.push_back({.to = to,
                      .begin = Now(),
                      .end = Now() + planned.lasts + more,
                      .what = std::string(Name(planned.fault))});
  };
  const bool of_feed = planned.pick % 2 != 0;  // as in Strike
  switch (planned.fault) {
    case Fault::kRestartFast:
    case Fault::kRestartImmediate:
    case Fault::kDiskFull:
    case Fault::kHangPostgres:
      if (of_feed) note(Blow::To::kDatabase, kStarts);
      return;
    case Fault::kSlowFsync:
      if (of_feed) note(Blow::To::kDatabase, Millis(0));
      return;
    case Fault::kResetRunnerDatabase:
    case Fault::kStallRunnerDatabase:
    case Fault::kLockReadModel:
      return note(Blow::To::kDatabase, Millis(0));
    case Fault::kFailover:
      return note(Blow::To::kFailover, kStarts);
    case Fault::kConsumerHangs:
    case Fault::kConsumerFails:
    case Fault::kConsumerIsAway:
    case Fault::kConsumerHasEnough:
    case Fault::kConsumerTruncates:
      return note(Blow::To::kConsumer, Millis(0));
    case Fault::kConsumerRefusesConnections:
    case Fault::kStopConsumer:
      return note(Blow::To::kAnswers, Millis(0));
    default:
      return;  // to others, or noted where it is done
  }
}

void Storm::Consumer(const std::string& mood, Millis time) {
  // Where two meet, the later one counts.
  world_.SetMood(mood);
  ++moods_;
  endings_.emplace_back(Now() + time, [this] {
    if (--moods_ == 0) world_.SetMood("well");
  });
}

void Storm::Lock(const std::string& database, const std::string& table, Millis time) {
  locks_.push_back({.database = database, .table = table, .until = Now() + time});
}

void Storm::TickLocks() {
  for (TableLock& lock : locks_) {
    const auto ended = lock.session == nullptr ? std::optional(-1) : lock.session->Ended();
    if (!ended) continue;
    lock.session.reset();
    if (*ended == 0) {
      ++locks_held_;
      lock.until = {};
    }
    const auto left = std::chrono::duration_cast<Millis>(lock.until - Now());
    if (left <= Millis(0)) continue;
    // Not pg_sleep, which goes by the server's clock.
    lock.session =
        world_.ServerOf(lock.database)
            .Run(lock.database,
                 {"BEGIN", fmt::format("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", lock.table),
                  fmt::format("\\! sleep {}", static_cast<double>(left.count()) / 1000), "COMMIT"});
  }
  std::erase_if(locks_, [](const TableLock& lock) { return lock.session == nullptr; });
}

void Storm::Reset(uint64_t pick) {
  if (reset_ != nullptr) return;  // an operator waits for the last one
  std::vector<std::string> target = {"--to-earliest"};
  constexpr const char* kReset[] = {"feed", World::kCalled, World::kVersions};
  const std::string group = kReset[++resets_ % std::size(kReset)];  // each in its turn
  const bool feed = group == "feed";
  if (pick % (feed ? 4 : 2) == 0) target.emplace_back("--empty");
  // (What the time must not leave out is known of the feed alone.)
  if (pick % 4 >= 2 && feed) {
    if (const std::string time = SafeTime(); !time.empty()) target = {"--to-time", time};
  }
  reset_ = world_.BeginReset(group, std::move(target));
  reset_blow_.reset();
  if (group == World::kCalled) {
    reset_blow_ = blows_.size();
    blows_.push_back({.to = Blow::To::kEpoch,
                      .begin = Now(),
                      .end = Now() + kResetLimit,
                      .what = "offset reset"});
  }
  reset_limit_ = Now() + kResetLimit;
}

void Storm::ReapReset() {
  if (reset_ == nullptr) return;
  const auto ended = reset_->Ended();
  if (!ended && Now() < reset_limit_) return;
  ++(ended == 0 ? resets_done_ : resets_refused_);
  if (reset_blow_) blows_[*reset_blow_].end = Now();
  reset_.reset();
}

std::string Storm::SafeTime() {
  Pair& pair = world_.feed_servers();
  if (pair.failing() || pair.primary().hangs()) return {};
  if (pair.failovers() != std::exchange(failovers_, pair.failovers())) in_inbox_ = 0;
  const auto connection = postgres::Connection::Open({.url = world_.feed_url(),
                                                      .application_name = "chaos",
                                                      .connect_timeout = Millis(1'000),
                                                      .statement_timeout = Millis(3'000)});
  if (!connection.ok()) return {};
  const auto generation = (*connection)->Execute(kGeneration);
  if (!generation.ok() || generation->empty()) return {};
  if (generation->Int(0, 0) != std::exchange(generation_, generation->Int(0, 0))) in_inbox_ = 0;
  const WallTime asked = Clock::System().Now() - std::chrono::seconds(8);
  const std::vector<std::string> ids = ledger_.Ids(in_inbox_, asked);
  postgres::Array array;
  for (const std::string& id : ids) array.Add(std::string_view(id));
  const auto missing = (*connection)->Execute(kMissing, array, generation_);
  if (!missing.ok() || missing->Int(0, 0) > 0) return {};
  in_inbox_ += ids.size();
  // Pub/Sub's clock may be behind ours by the whole swing.
  return FormatTimestamp(asked - World::kClockSwing - std::chrono::seconds(1));
}

}  // namespace lockstep::chaos
