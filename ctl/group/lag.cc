#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <thread>

#include "ctl/command/command.h"
#include "ctl/command/progress.h"
#include "ctl/command/table.h"
#include "ctl/group/runner_context.h"
#include "platform/pace.h"
#include "platform/printable.h"
#include "platform/status.h"
#include "platform/text.h"
#include "state/groups/overview.h"

namespace lockstep::ctl {
namespace {

constexpr Millis kLook{1'000};
constexpr Pace::Options kPace{.shortest = 5, .longest = 5};  // reports come in steps

constexpr int64_t kNoBacklog = 2'000;  // ms of lag: whoever keeps up has nothing to get through

struct LagOptions {
  std::string schema;
  bool watch = false;
};

// A group as state::Overview::Lags has it, and how it moves.
struct Group {
  postgres::Row row;
  double rate = 0;
  std::optional<double> eta = {};  // seconds

  // Nothing in hand and nothing comes: an old position then means an idle topic, not a lag.
  bool idle() const { return row.Int("queued") == 0 && rate == 0; }
  std::string state() const {
    if (!row.IsNull("paused_at")) return "paused";
    if (row.Int("instances") == 0) return "no runner";
    if (row.Text("seek_state") != "done") return "seeking";
    // The word of the runner that is farthest behind; empty when all are well.
    if (!row.Text("trouble").empty()) return row.String("trouble");
    return idle() ? "idle" : "working";
  }
};

absl::StatusOr<postgres::Result> Look(const RunnerContext& runner) {
  return state::Overview(runner.schema()).Lags(*runner.connection);
}

// How a group's numbers move from look to look.
struct Moving {
  int64_t epoch = 0;
  Pace handled{kPace};
  Pace behind{kPace};  // in seconds
};
using Movements = std::map<std::string, Moving>;  // by group

// How fast, and when a group that works through a backlog will be through. The position nears the
// present by more than a second a second, or never arrives. REQUIRES: `rows` outlive the groups.
std::vector<Group> Estimate(Movements& movements, double seconds, const postgres::Result& rows) {
  std::vector<Group> groups;
  for (const postgres::Row row : rows) {
    Group& group = groups.emplace_back(Group{.row = row});
    Moving& moving = movements[row.String("group_name")];
    if (moving.epoch != row.Int("epoch")) moving = {.epoch = row.Int("epoch")};
    moving.handled.Note(seconds, static_cast<double>(row.Int("handled")));
    group.rate = std::max(0.0, moving.handled.per_second().value_or(0));
    if (row.IsNull("behind_ms")) continue;
    const double behind = static_cast<double>(row.Int("behind_ms")) / 1000;
    moving.behind.Note(seconds, behind);
    if (group.idle() || row.OptionalInt("lag_ms").value_or(kNoBacklog) < kNoBacklog) continue;
    if (moving.behind.per_second().value_or(0) < -0.01)
      group.eta = moving.behind.SecondsFor(-behind);
  }
  return groups;
}

Json LagJson(const Group& group) {
  const postgres::Row& row = group.row;
  return {{"group", row.Text("group_name")},
          {"state", group.state()},
          {"epoch", row.Int("epoch")},
          {"instances", row.Int("instances")},
          {"lag_ms", OrNull(row.OptionalInt("lag_ms"))},
          {"lag_basis", row.Text("lag_basis")},
          {"offset_lag_ms", OrNull(row.OptionalInt("offset_lag_ms"))},
          {"occurred_to_published_ms", OrNull(row.OptionalInt("publish_lag_ms"))},
          {"published_to_received_ms", OrNull(row.OptionalInt("receive_lag_ms"))},
          {"received_to_committed_ms", OrNull(row.OptionalInt("commit_lag_ms"))},
          {"rate", group.rate},
          {"eta_seconds", OrNull(group.eta)},
          {"queued", row.Int("queued")},
          {"parked_keys", row.Int("waiting_keys")},
          {"dead_letters", row.Int("dead_letters")}};
}

std::string GroupTable(const std::vector<Group>& groups) {
  using enum Table::Column::Kind;
  Table table({{"GROUP"},
               {"STATE"},
               {"ALIVE", kNumber},
               {"LAG", kNumber},
               {"OCC>PUB", kNumber},
               {"PUB>RECV", kNumber},
               {"RECV>DB", kNumber},
               {"RATE/S", kNumber},
               {"ETA", kNumber},
               {"QUEUED", kNumber},
               {"PARKED", kNumber},
               {"DEAD", kNumber}});
  for (const Group& group : groups) {
    const postgres::Row& row = group.row;
    const auto millis = [&](const char* column) {
      return row.IsNull(column) ? "-" : About(Millis(row.Int(column)));
    };
    const std::string eta =
        group.eta ? About(std::chrono::seconds(static_cast<int64_t>(std::ceil(*group.eta)))) : "-";
    const int64_t dead = row.Int("dead_letters");
    table.Add({row.String("group_name"), Table::Cell(group.state(), StyleOf(group.state())),
               row.Int("instances"), millis("lag_ms"), millis("publish_lag_ms"),
               millis("receive_lag_ms"), millis("commit_lag_ms"), fmt::format("{:.0f}", group.rate),
               eta, row.Int("queued"), row.Int("waiting_keys"),
               Table::Cell(std::to_string(dead), dead > 0 ? Style::kBad : Style::kPlain)});
  }
  return table.Text(WidthOf(stdout), HasColour(stdout));
}

// In place, without the flicker of an emptied screen.
void Refresh(const std::string& text) {
  const std::string now = FormatTimestamp(Clock::System().Now()).substr(0, 19);
  // Each line clears what was there.
  fmt::print("\033[H{}Z\033[K\n\033[K\n", now);
  for (const std::string& line : SplitList(text, '\n')) {
    if (!line.empty()) fmt::print("{}\033[K\n", line);
  }
  fmt::print("\033[J");
}

absl::Status Watch(const Context& context, const LagOptions& options, RunnerContext runner) {
  const bool screen = !context.json && isatty(STDOUT_FILENO) != 0;
  if (screen) fmt::print("\033[2J");
  Movements movements;
  while (true) {
    const auto looked = Look(runner);
    if (!looked.ok()) {  // it may be back in a moment, and whoever watches wants to see that
      if (!screen) return looked.status();
      Refresh(
          fmt::format("the database can't be asked: {}\n", Printable(MessageOf(looked.status()))));
      if (auto again = OpenRunner(context, options.schema); again.ok()) runner = *std::move(again);
      movements.clear();
    } else {
      const auto now = Clock::System().Steady().time_since_epoch();
      const auto groups = Estimate(movements, std::chrono::duration<double>(now).count(), *looked);
      if (context.json) fmt::print("{}\n", ListOf(groups, LagJson).dump());
      if (screen) Refresh(GroupTable(groups));
      if (!context.json && !screen) fmt::print("{}", GroupTable(groups));
    }
    std::fflush(stdout);
    std::this_thread::sleep_for(kLook);
  }
}

absl::Status Lag(const Context& context, const LagOptions& options) {
  ASSIGN_OR_RETURN(auto runner, OpenRunner(context, options.schema));
  if (options.watch) return Watch(context, options, std::move(runner));
  Movements movements;
  ASSIGN_OR_RETURN(const auto before, Look(runner));
  Estimate(movements, 0, before);
  // Runners report each second: two looks closer together would see nothing move.
  std::this_thread::sleep_for(2 * kLook);
  ASSIGN_OR_RETURN(const auto now, Look(runner));
  const auto groups = Estimate(movements, std::chrono::duration<double>(2 * kLook).count(), now);
  return context.Answer(ListOf(groups, LagJson), [&] { fmt::print("{}", GroupTable(groups)); });
}

}  // namespace

void AddLag(const Command& program) {
  const auto o = std::make_shared<LagOptions>();
  program.Add("lag", "groups: lag by stage, rate, time left, parked keys and dead letters", o, Lag)
      .With(
          {{"--watch", &o->watch, "look again every second, until Ctrl-C; with --json a line each"},
           {"--schema", &o->schema, "the state schema, where no --config says it"}});
}

}  // namespace lockstep::ctl
