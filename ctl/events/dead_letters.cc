#include "operations/dead_letters.h"

#include <fmt/format.h>

#include <charconv>

#include "ctl/command/command.h"
#include "ctl/command/operator.h"
#include "ctl/command/print.h"
#include "ctl/command/table.h"
#include "ctl/group/runner_context.h"
#include "platform/status.h"
#include "platform/text.h"
#include "postgres/sql_error.h"
#include "projections/tools/explain.h"
#include "state/events/dead_letters.h"

namespace lockstep::ctl {
namespace {

using state::DeadLetterFilter;
using state::DeadLetterRow;

constexpr int kMost = 100'000;
constexpr size_t kShown = 20;  // of those that a command is about

struct DeadLettersOptions {
  std::string group, schema;
  DeadLetterFilter filter;
  int64_t id = 0;
  int limit = 100;
  bool payload = false, all = false, accept_missing = false;
};

state::DeadLetters Letters(const GroupDesk& desk) {
  return {desk.runner.schema(), ConsumerGroup(desk.group)};
}

Json LetterJson(const DeadLetterRow& row) {
  return {{"id", row.id},
          {"state", row.state},
          {"event_id", row.event_id},
          {"event_type", row.event_type},
          {"aggregate", row.aggregate_key},
          {"version", OrNull(row.version)},
          {"ordering_key", row.ordering_key},
          {"message_id", row.message_id},
          {"code", row.code},
          {"reason", row.reason},
          {"attempts", row.attempts},
          {"blocks", row.blocks},
          {"waiting", row.waiting},
          {"payload_bytes", row.payload_bytes},
          {"note", row.note},
          {"dead_at", FormatTimestamp(row.dead_at)}};
}

void PrintLetters(const std::vector<DeadLetterRow>& rows, size_t most, std::FILE* to) {
  using enum Table::Column::Kind;
  Table table({{"ID", kNumber},
               {"STATE"},
               {"DEAD SINCE", kTime},
               {"AGGREGATE"},
               {"VERSION", kNumber},
               {"TYPE", kCut},
               {"WAITING", kNumber},
               {"CODE"},
               {"REASON", kCut}});
  for (const DeadLetterRow& row : rows) {
    if (most-- == 0) break;
    table.Add({row.id, Table::Cell(row.state, StyleOf(row.state)), FormatTimestamp(row.dead_at),
               row.aggregate_key, OrNull(row.version), row.event_type, row.waiting, row.code,
               row.reason});
  }
  table.Print(to);
}

// At most `limit` of them, and a word on the terminal if there are more.
absl::StatusOr<std::vector<DeadLetterRow>> Find(const GroupDesk& desk,
                                                const DeadLetterFilter& filter, int limit,
                                                const char* more) {
  auto found = Letters(desk).List(desk.connection(), filter, limit + 1);
  if (postgres::SqlState(found.status()) == "22P02") {  // of all that is asked for, only ids can be
    return InvalidArgument("--event: '{}' is not an event id (a UUID)", filter.event_id);
  }
  ASSIGN_OR_RETURN(auto rows, std::move(found));
  if (static_cast<int>(rows.size()) > limit) {
    rows.resize(static_cast<size_t>(limit));
    Print(stderr, "These are the first {} of more: {}.\n", limit, more);
  }
  return rows;
}

absl::Status ListLetters(const Context& context, const DeadLettersOptions& options) {
  ASSIGN_OR_RETURN(const GroupDesk desk, OpenDesk(context, options.group, options.schema));
  DeadLetterFilter filter = options.filter;
  filter.newest_first = true;
  ASSIGN_OR_RETURN(const auto rows, Find(desk, filter, options.limit, "--limit shows more"));
  return context.Answer(ListOf(rows, LetterJson), [&] {
    if (rows.empty()) {
      Print("Group {} has no such dead letter.\n", desk.group);
    } else {
      PrintLetters(rows, rows.size(), stdout);
    }
  });
}

// Decoded as far as it can be: protobuf needs the group's file (--config), else it is hex.
Json Payload(const GroupDesk& desk, const DeadLetterRow& row, const Json& attributes) {
  projections::Event event;
  event.event_type = row.event_type;
  event.payload = row.payload;
  event.content_type = attributes.value("content_type", "application/json");
  const std::string schema_version = attributes.value("schema_version", "1");
  std::from_chars(schema_version.data(), schema_version.data() + schema_version.size(),
                  event.schema_version);
  std::optional<std::string> text = row.payload;
  if (desk.runner.group != nullptr) {
    text = projections::PayloadAsJson(desk.runner.group->declaration->projector->plan(), event);
  }
  const Json parsed = Json::parse(text.value_or(""), nullptr, false);
  return parsed.is_discarded() ? Json(postgres::EncodeBytea(row.payload)) : parsed;
}

absl::Status ShowLetter(const Context& context, const DeadLettersOptions& options) {
  ASSIGN_OR_RETURN(const GroupDesk desk, OpenDesk(context, options.group, options.schema));
  ASSIGN_OR_RETURN(const DeadLetterRow row,
                   Letters(desk).Show(desk.connection(), options.id, options.payload));
  Json json = LetterJson(row);
  json["attributes"] = Json::parse(row.attributes, nullptr, false);
  if (options.payload) json["payload"] = Payload(desk, row, json["attributes"]);
  return context.Answer(json, [&] {
    PrintMembers(json);
    if (!options.payload) Print("The payload is shown with --payload.\n");
  });
}

// The dead letters that a dangerous command is about, in the order in which they are replayed:
// shown, and confirmed. `does`: what happens to them.
absl::StatusOr<std::vector<DeadLetterRow>> Choose(const Context& context, const GroupDesk& desk,
                                                  const DeadLettersOptions& options,
                                                  const char* state, const char* does) {
  if (options.filter.selective() == options.all) {
    return InvalidArgument(
        "say which dead letters are meant: their ids, or a filter (--event, --key, --code, "
        "--type); "
        "or --all");
  }
  DeadLetterFilter filter = options.filter;
  filter.state = state;
  ASSIGN_OR_RETURN(auto rows, Find(desk, filter, kMost, "repeat the command for the rest"));
  if (rows.empty()) {
    return NotFound("group '{}' has no such dead letter that is {}", desk.group, state);
  }
  if (!context.json) {
    PrintLetters(rows, kShown, context.plan_out());
    if (rows.size() > kShown) Print(context.plan_out(), "… and {} more\n", rows.size() - kShown);
  }
  const Json ids = ListOf(rows, [](const DeadLetterRow& row) { return row.id; });
  // What is confirmed is what is done: these, whatever fits the filter meanwhile.
  RETURN_IF_ERROR(context.Confirm(fmt::format("{} {} dead letter{} of group {}.", does, rows.size(),
                                              rows.size() == 1 ? "" : "s", desk.group),
                                  {{"group", desk.group}, {"count", rows.size()}, {"ids", ids}}));
  return rows;
}

absl::Status Resolve(const Context& context, const DeadLettersOptions& options, bool replay) {
  ASSIGN_OR_RETURN(const GroupDesk desk, OpenDesk(context, options.group, options.schema));
  if (desk.runner.group == nullptr) {
    return InvalidArgument(
        "name the runner's file with --config: its projections are needed to {} events of '{}'",
        replay ? "apply the" : "release the waiting", desk.group);
  }
  ASSIGN_OR_RETURN(const auto rows, Choose(context, desk, options, "dead",
                                           replay ? "Replays" : "Discards for good"));
  ASSIGN_OR_RETURN(const std::string database, context.Database());
  operations::DeadLetterResolver resolver(database, desk.runner.schema(),
                                          desk.runner.group->options,
                                          *desk.runner.group->declaration->projector);
  Json done = Json::array(), failed = Json::array();
  for (const DeadLetterRow& row : rows) {
    const absl::Status resolved = resolver.Resolve({.id = row.id,
                                                    .replay = replay,
                                                    .operator_name = OperatorOfThis(),
                                                    .reason = context.reason,
                                                    .accept_missing = options.accept_missing});
    if (resolved.ok()) {
      done.push_back(row.id);
    } else {
      failed.push_back({{"id", row.id}, {"error", MessageOf(resolved)}});
    }
  }
  const char* const what = replay ? "replayed" : "discarded";
  const Json waited = {{"applied", resolver.applied()}, {"dead", resolver.dead()}};
  RETURN_IF_ERROR(context.Answer({{what, done}, {"failed", failed}, {"waited", waited}}, [&] {
    Print("{}: {}; of those that waited behind them {} were applied, {} are dead now\n", what,
          done.size(), resolver.applied(), resolver.dead());
    for (const auto& failure : failed) {
      Print("failed: {}: {}\n", TextOf(failure["id"]), TextOf(failure["error"]));
    }
  }));
  if (failed.empty()) return absl::OkStatus();
  return FailedPrecondition("{} of {} dead letters could not be resolved", failed.size(),
                            rows.size());
}

absl::Status Quarantine(const Context& context, const DeadLettersOptions& options, bool release) {
  ASSIGN_OR_RETURN(const GroupDesk desk, OpenDesk(context, options.group, options.schema));
  ASSIGN_OR_RETURN(const auto rows, Choose(context, desk, options, release ? "quarantined" : "dead",
                                           release ? "Takes out of quarantine" : "Quarantines"));
  std::vector<int64_t> ids;
  for (const DeadLetterRow& row : rows) ids.push_back(row.id);
  ASSIGN_OR_RETURN(const int64_t moved, Letters(desk).Quarantine(desk.connection(), ids, !release,
                                                                 OperatorOfThis(), context.reason));
  return context.Answer({{"changed", moved}}, [&] { Print("changed: {}\n", moved); });
}

}  // namespace

void AddDeadLetters(const Command& program) {
  const Command letters = program.AddGroup(
      "dead-letters", "messages that a consumer group could not apply, and what waits for them");
  const auto o = std::make_shared<DeadLettersOptions>();
  const auto add = [&](const char* name, const char* help, auto... run) {
    return letters.Add(name, help, o, run...)
        .With({{"--group", &o->group, "the consumer group; the file's only one"},
               {"--schema", &o->schema, "the service's state schema; the file's"}});
  };
  const std::vector<Option> filter = {
      {"--event", &o->filter.event_id, "its event id"},
      {"--key", &o->filter.key, "its aggregate (video/123) or ordering key"},
      {"--code", &o->filter.code, "why it died, as in docs/errors.md"},
      {"--type", &o->filter.event_type, "its event type"}};
  const auto change = [&](const char* name, const char* help, Command::Reason reason, auto... run) {
    return add(name, help, run...)
        .With({{"id", &o->filter.ids, "which, by their numbers in the list"}})
        .With(filter)
        .With({{"--all", &o->all, "all of them"}})
        .Changes(reason);
  };
  add("list", "what is dead, the newest first", ListLetters)
      .With(filter)
      .With({{"--state",
              &o->filter.state,
              "in this state; without it dead and quarantined ones",
              Option::kOptional,
              {"dead", "quarantined", "replayed", "discarded", "any"}},
             {"--limit", &o->limit, "rows at most", Option::kShowsDefault, {}, 1'000'000}});
  add("show", "one of them", ShowLetter)
      .With({{"id", &o->id, "its number in the list", Option::kRequired},
             {"--payload", &o->payload,
              "its payload too, decoded (protobuf with --config), else in hex"}});
  change("replay", "apply them after all, in order, and what waits behind them", Command::kReason,
         Resolve, /*replay=*/true);
  change("discard", "give them up: what waits behind them goes on", Command::kReasonRequired,
         Resolve, /*replay=*/false)
      .With({{"--accept-missing", &o->accept_missing,
              "also where versions before it have not come yet, which are given up too"}});
  change("quarantine", "keep them from every replay; their keys go on waiting",
         Command::kReasonRequired, Quarantine, /*release=*/false);
  change("release", "end a quarantine: they can be replayed again", Command::kReason, Quarantine,
         /*release=*/true);
}

}  // namespace lockstep::ctl
