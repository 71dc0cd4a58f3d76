#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <thread>

#include "ctl/command.h"
#include "ctl/group_context.h"
#include "ctl/progress.h"
#include "platform/duration.h"
#include "platform/pace.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "state/groups/overview.h"

namespace lockstep::ctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr Millis kLook{1'000};
constexpr Pace::Options kPace{.shortest = 5, .longest = 5};  // reports come in steps

constexpr int64_t kNoBacklog = 2'000;  // ms of lag: whoever keeps up has nothing to get through

struct Options {
  std::string schema;
  bool watch = false;
};

struct Group {
  std::string name, seek;
  std::string trouble;  // the word of the runner that is farthest behind; empty when all are well
  std::string basis;    // what the lag is measured by
  int64_t epoch = 0, alive = 0, handled = 0, queued = 0, parked = 0, dead = 0;
  std::optional<int64_t> to_published, to_received, to_committed, behind;
  std::optional<int64_t> lag;         // how old the read model is, as the runners say
  std::optional<int64_t> offset_lag;  // from publish to commit, of the last offset saved
  double rate = 0;
  std::optional<double> eta;  // seconds

  // Nothing in hand and nothing comes: an old position then means an idle topic, not a lag.
  bool idle() const { return queued == 0 && rate == 0; }
  std::string state() const {
    if (alive == 0) return "no runner";
    if (seek != "done") return "seeking";
    if (!trouble.empty()) return trouble;
    return idle() ? "idle" : "working";
  }
};

absl::StatusOr<std::vector<Group>> Look(RunnerContext& runner) {
  ASSIGN_OR_RETURN(const auto rows, state::Overview(runner.schema()).Lags(*runner.connection));
  std::vector<Group> groups;
  for (const postgres::Row row : rows) {
    groups.push_back({.name = row.String("group_name"),
                      .seek = row.String("seek_state"),
                      .trouble = row.String("trouble"),
                      .basis = row.String("lag_basis"),
                      .epoch = row.Int("epoch"),
                      .alive = row.Int("instances"),
                      .handled = row.Int("handled"),
                      .queued = row.Int("queued"),
                      .parked = row.Int("waiting_keys"),
                      .dead = row.Int("dead_letters"),
                      .to_published = row.OptionalInt("publish_lag_ms"),
                      .to_received = row.OptionalInt("receive_lag_ms"),
                      .to_committed = row.OptionalInt("commit_lag_ms"),
                      .behind = row.OptionalInt("behind_ms"),
                      .lag = row.OptionalInt("lag_ms"),
                      .offset_lag = row.OptionalInt("offset_lag_ms")});
  }
  return groups;
}

// How a group's numbers move from look to look.
struct Moving {
  int64_t epoch = 0;
  Pace handled{kPace};
  Pace behind{kPace};  // in seconds
};
using Movements = std::map<std::string, Moving>;  // by group

// How fast, and when a group that works through a backlog will be through. The position nears the
// present by more than a second a second, or never arrives.
void Estimate(Movements& movements, double seconds, std::vector<Group>& groups) {
  for (Group& group : groups) {
    Moving& moving = movements[group.name];
    if (moving.epoch != group.epoch) moving = {.epoch = group.epoch};
    moving.handled.Note(seconds, static_cast<double>(group.handled));
    group.rate = std::max(0.0, moving.handled.per_second().value_or(0));
    if (!group.behind) continue;
    const double behind = static_cast<double>(*group.behind) / 1000;
    moving.behind.Note(seconds, behind);
    if (group.idle() || (group.lag && *group.lag < kNoBacklog)) continue;
    if (moving.behind.per_second().value_or(0) < -0.01)
      group.eta = moving.behind.SecondsFor(-behind);
  }
}

std::string Text(const std::optional<int64_t>& millis) {
  return millis ? About(Millis(*millis)) : "-";
}

Json ToJson(const Group& group) {
  const auto maybe = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  return {{"group", group.name},
          {"state", group.state()},
          {"epoch", group.epoch},
          {"instances", group.alive},
          {"lag_ms", maybe(group.lag)},
          {"lag_basis", group.basis},
          {"offset_lag_ms", maybe(group.offset_lag)},
          {"occurred_to_published_ms", maybe(group.to_published)},
          {"published_to_received_ms", maybe(group.to_received)},
          {"received_to_committed_ms", maybe(group.to_committed)},
          {"rate", group.rate},
          {"eta_seconds", maybe(group.eta)},
          {"queued", group.queued},
          {"parked_keys", group.parked},
          {"dead_letters", group.dead}};
}

// As wide as the names are; each line clears what a watched screen had there.
std::string Table(const std::vector<Group>& groups, bool screen) {
  const char* const end = screen ? "\033[K\n" : "\n";
  size_t name = 5, state = 7;
  for (const Group& g : groups) {
    name = std::max(name, g.name.size());
    state = std::max(state, g.state().size());
  }
  std::string table =
      fmt::format("{:<{}}  {:<{}} {:>5} {:>7} {:>7} {:>8} {:>7} {:>7} {:>7} {:>6} {:>6} {:>5}{}",
                  "GROUP", name, "STATE", state, "ALIVE", "LAG", "OCC>PUB", "PUB>RECV", "RECV>DB",
                  "RATE/S", "ETA", "QUEUED", "PARKED", "DEAD", end);
  for (const Group& g : groups) {
    const std::string eta =
        g.eta ? About(std::chrono::seconds(static_cast<int64_t>(std::ceil(*g.eta)))) : "-";
    table += fmt::format(
        "{:<{}}  {:<{}} {:>5} {:>7} {:>7} {:>8} {:>7} {:>7.0f} {:>7} {:>6} {:>6} {:>5}{}", g.name,
        name, g.state(), state, g.alive, Text(g.lag), Text(g.to_published), Text(g.to_received),
        Text(g.to_committed), g.rate, eta, g.queued, g.parked, g.dead, end);
  }
  return table;
}

Json ToJson(const std::vector<Group>& groups) {
  Json list = Json::array();
  for (const Group& group : groups) list.push_back(ToJson(group));
  return list;
}

// In place, without the flicker of an emptied screen.
void Refresh(const std::string& text) {
  const std::string now = FormatTimestamp(Clock::System().Now()).substr(0, 19);
  fmt::print("\033[H{}Z\033[K\n\033[K\n{}\033[J", now, text);
}

absl::Status Watch(const Context& context, const Options& options, RunnerContext runner) {
  const bool screen = !context.json && isatty(STDOUT_FILENO) != 0;
  if (screen) fmt::print("\033[2J");
  Movements movements;
  while (true) {
    auto looked = Look(runner);
    if (!looked.ok()) {  // it may be back in a moment, and whoever watches wants to see that
      if (!screen) return looked.status();
      Refresh(fmt::format("the database can't be asked: {}\033[K\n", MessageOf(looked.status())));
      if (auto again = OpenRunner(context, options.schema); again.ok()) runner = *std::move(again);
      movements.clear();
    } else {
      const auto now = Clock::System().Steady().time_since_epoch();
      Estimate(movements, std::chrono::duration<double>(now).count(), *looked);
      if (context.json) fmt::print("{}\n", ToJson(*looked).dump());
      if (screen) Refresh(Table(*looked, screen));
      if (!context.json && !screen) fmt::print("{}", Table(*looked, screen));
    }
    std::fflush(stdout);
    std::this_thread::sleep_for(kLook);
  }
}

absl::Status Lag(const Context& context, const Options& options) {
  ASSIGN_OR_RETURN(auto runner, OpenRunner(context, options.schema));
  if (options.watch) return Watch(context, options, std::move(runner));
  ASSIGN_OR_RETURN(std::vector<Group> now, Look(runner));
  Movements movements;
  Estimate(movements, 0, now);
  // Runners report each second: two looks closer together would see nothing move.
  std::this_thread::sleep_for(2 * kLook);
  ASSIGN_OR_RETURN(now, Look(runner));
  Estimate(movements, std::chrono::duration<double>(2 * kLook).count(), now);
  context.Answer(ToJson(now), [&] { fmt::print("{}", Table(now, /*screen=*/false)); });
  return absl::OkStatus();
}

}  // namespace

void AddLag(const Command& program) {
  const auto options = std::make_shared<Options>();  // outlives this function with the callback
  program
      .Add("lag", "groups: lag by stage, rate, time left, parked keys and dead letters",
           [options](const Context& c) { return Lag(c, *options); })
      .Flag("--watch", options->watch,
            "look again every second, until Ctrl-C; with --json a line each")
      .Option("--schema", options->schema, "the state schema, where no --config says it");
}

}  // namespace lockstep::ctl
