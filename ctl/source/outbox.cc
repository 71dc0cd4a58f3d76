// lockstepctl outbox: the outboxes of a database, and what an operator does to their rows.
#include <fmt/format.h>

#include "ctl/command/command.h"
#include "ctl/command/operator.h"
#include "ctl/command/print.h"
#include "ctl/command/table.h"
#include "envelope/event.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"
#include "publisher/outbox/outbox_rows.h"
#include "publisher/outbox/outboxes.h"

namespace lockstep::ctl {
namespace {

using postgres::QualifiedName;
using publisher::RowState;

constexpr int64_t kMost = 1'000'000;
constexpr size_t kShown = 20;  // of the rows that a command is about

struct OutboxOptions {
  std::string table, state = "unpublished";
  int shards = 1;
  std::string dedup_window = "0";
  std::string partition;
  bool force = false, all = false;
  publisher::RowFilter filter;
  std::string older_than;
  int limit = 50;
};

// A missing schema or function is a database that was never migrated: says so. A missing `table` is
// no outbox: says where to look.
absl::Status ExplainMissing(const absl::Status& status, const QualifiedName* table = nullptr) {
  const std::string state = postgres::SqlState(status);
  const auto names = [&](const std::string& text) {
    return MessageOf(status).find(text) != std::string_view::npos;
  };
  // Itself, or what stands beside an outbox under its name.
  bool no_table = false;
  for (const char* part : {"", "_status", "_pending", "_published", "_leases"}) {
    no_table = no_table || (table != nullptr && state == "42P01" &&
                            names(fmt::format("\"{}.{}{}\"", table->schema, table->name, part)));
  }
  if (no_table) {
    return NotFound(
        "{} is not an outbox in this database; lockstepctl outbox list shows those that are",
        table->ToString());
  }
  // No schema lockstep, no such function, no such table of ours.
  if (state == "3F000" || state == "42883" || (state == "42P01" && names("lockstep."))) {
    return FailedPrecondition(
        "this database has no outboxes yet: run lockstepctl migrate up first");
  }
  return status;
}

absl::Status Create(const Context& context, const OutboxOptions& options) {
  ASSIGN_OR_RETURN(const auto table, QualifiedName::Parse(options.table));
  ASSIGN_OR_RETURN(const Millis window, ParseDuration(options.dedup_window));
  const std::string& partition = options.partition;
  if (!partition.empty() && partition != "day" && partition != "hour") {
    return InvalidArgument("--partition: '{}' is neither day nor hour", partition);
  }
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  RETURN_IF_ERROR(context.Announce(
      fmt::format("This makes {} an outbox, with its constraints and indexes.", table.ToString())));
  const auto made = publisher::CreateOutbox(*connection, table, options.shards, window, partition);
  if (!made.ok()) return ExplainMissing(made.status());
  return context.Answer({{"outbox", *made}}, [&] { Print("{} is an outbox\n", *made); });
}

absl::Status ContentDedup(const Context& context, const OutboxOptions& options) {
  ASSIGN_OR_RETURN(const auto table, QualifiedName::Parse(options.table));
  ASSIGN_OR_RETURN(const Millis window, ParseDuration(options.dedup_window));
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  const std::string what =
      window == Millis(0)
          ? fmt::format("{}: no content dedup", table.ToString())
          : fmt::format("{}: what was sent to a target_space is not sent there again for {}",
                        table.ToString(), FormatDuration(window));
  RETURN_IF_ERROR(context.Announce(what));
  const absl::Status set = publisher::SetDedupWindow(*connection, table, window);
  if (!set.ok()) return ExplainMissing(set, &table);
  return context.Answer({{"outbox", table.ToString()}, {"dedup_window", FormatDuration(window)}},
                        [&] { Print("{}\n", what); });
}

absl::Status Drop(const Context& context, const OutboxOptions& options) {
  ASSIGN_OR_RETURN(const auto table, QualifiedName::Parse(options.table));
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  const auto waiting = publisher::CountUnpublished(*connection, table);
  if (!waiting.ok()) return ExplainMissing(waiting.status(), &table);
  RETURN_IF_ERROR(
      context.Confirm(fmt::format("This drops {} with all its rows; {} of them are unpublished.",
                                  table.ToString(), *waiting),
                      {{"outbox", table.ToString()}, {"unpublished", *waiting}}));
  const absl::Status dropped = publisher::DropOutbox(*connection, table, options.force);
  if (!dropped.ok()) return ExplainMissing(dropped, &table);
  return context.Answer({{"dropped", table.ToString()}},
                        [&] { Print("{} is gone\n", table.ToString()); });
}

absl::Status ListOutboxes(const Context& context) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  const auto list = publisher::ListOutboxes(*connection);
  if (!list.ok()) return ExplainMissing(list.status());
  return context.Answer(*list, [&] {
    if (list->empty()) return Print("This database has no outbox.\n");
    using enum Table::Column::Kind;
    Table table({{"OUTBOX"},
                 {"SHARDS", kNumber},
                 {"ROWS ABOUT", kNumber},
                 {"BYTES", kNumber},
                 {"PARTITION"}});
    for (const Json& outbox : *list) {
      table.Add({outbox["outbox"], outbox["shards"], outbox["rows"], outbox["bytes"],
                 outbox["partition"]});
    }
    table.Print();
  });
}

const char* RowStateOf(const Json& row) {
  if (!row["published_at"].is_null()) return "published";
  if (!row["quarantined_at"].is_null()) return "quarantined";
  if (!row["dead_at"].is_null()) return "dead";
  if (row["leased"].get<bool>()) return "leased";
  return row["available_at"] == "infinity" ? "held" : "waits";
}

void PrintRows(const Json& rows, size_t most, std::FILE* to) {
  using enum Table::Column::Kind;
  Table table({{"EVENT"},
               {"STATE"},
               {"AGGREGATE"},
               {"VERSION", kNumber},
               {"TYPE", kCut},
               {"TOPIC", kCut},
               {"ENQUEUED", kTime},
               {"ATTEMPTS", kNumber},
               {"CODE"},
               {"ERROR", kCut}});
  for (const Json& row : rows) {
    if (most-- == 0) break;
    const std::string state = row["state"].get<std::string>();
    table.Add({row["event_id"], Table::Cell(state, StyleOf(state)), row["aggregate"],
               row["version"], row["event_type"], row["topic"], row["created_at"], row["attempts"],
               row["error_code"], row["last_error"]});
  }
  table.Print(to);
}

absl::StatusOr<Json> Find(postgres::Connection& connection, const QualifiedName& table,
                          const OutboxOptions& options, RowState state, int64_t limit) {
  publisher::RowFilter filter = options.filter;
  if (!options.older_than.empty()) {
    ASSIGN_OR_RETURN(filter.older_than, ParseDuration(options.older_than));
  }
  auto rows = publisher::FindRows(connection, table, state, filter, limit);
  if (postgres::SqlState(rows.status()) == "22P02") {  // of all that is asked for, only ids can be
    return InvalidArgument("'{}' is not an event id (a UUID)", fmt::join(filter.events, ", "));
  }
  if (!rows.ok()) return ExplainMissing(rows.status(), &table);
  for (Json& row : *rows) {
    row["state"] = RowStateOf(row);
    const Json& tenant = row["tenant_id"];
    row["aggregate"] = envelope::AggregateKey(
        {.tenant_id = tenant.is_null() ? std::nullopt : std::optional(TextOf(tenant)),
         .type = TextOf(row["aggregate_type"]),
         .id = TextOf(row["aggregate_id"])});
    Rfc3339(row, {"available_at", "published_at", "dead_at", "quarantined_at", "locked_at",
                  "created_at", "occurred_at"});
  }
  return rows;
}

RowState ParseState(const std::string& state) {
  if (state == "any") return RowState::kAny;
  if (state == "pending") return RowState::kPending;
  if (state == "dead") return RowState::kDead;
  if (state == "quarantined") return RowState::kQuarantined;
  return state == "published" ? RowState::kPublished : RowState::kUnpublished;
}

absl::Status ListRows(const Context& context, const OutboxOptions& options) {
  if (options.table.empty()) return ListOutboxes(context);
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(const auto table, QualifiedName::Parse(options.table));
  ASSIGN_OR_RETURN(const auto list,
                   Find(*connection, table, options, ParseState(options.state), options.limit));
  return context.Answer(list, [&] {
    if (list.empty()) return Print("{} has no such rows.\n", table.ToString());
    PrintRows(list, list.size(), stdout);
    if (static_cast<int>(list.size()) == options.limit) {
      Print("The first {}; --limit shows more.\n", options.limit);
    }
  });
}

absl::Status ShowRow(const Context& context, const OutboxOptions& options) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(const auto table, QualifiedName::Parse(options.table));
  ASSIGN_OR_RETURN(auto list, Find(*connection, table, options, RowState::kAny, 1));
  if (list.empty()) {
    return NotFound("{} has no event {}", options.table, fmt::join(options.filter.events, ", "));
  }
  auto& row = list[0];
  ASSIGN_OR_RETURN(Json audit,
                   publisher::ReadAudit(*connection, table, row["sequence"].get<int64_t>()));
  for (Json& entry : audit) Rfc3339(entry, {"at"});
  row["audit"] = std::move(audit);
  return context.Answer(row, [&] {
    PrintMembers(row, {"audit"});
    if (row["audit"].empty()) return;
    Print("\n");
    using enum Table::Column::Kind;
    Table audit_table({{"AT", kTime}, {"ACTION"}, {"BY"}, {"ROLE"}, {"REASON", kCut}});
    for (const Json& entry : row["audit"]) {
      audit_table.Add({entry["at"], entry["action"], entry["actor"], entry["role"], entry["note"]});
    }
    audit_table.Print();
  });
}

absl::Status Change(const Context& context, const OutboxOptions& options, std::string action,
                    RowState state) {
  const bool filtered = options.filter != publisher::RowFilter() || !options.older_than.empty();
  if (filtered == options.all) {
    return InvalidArgument(
        "say which rows: events by their ids, or a filter (--key, --tenant, --topic, --type, "
        "--code, --older-than); or --all");
  }
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(const auto table, QualifiedName::Parse(options.table));
  ASSIGN_OR_RETURN(const auto list, Find(*connection, table, options, state, kMost));
  if (list.empty()) return NotFound("{} has no such rows to {}", options.table, action);
  std::vector<int64_t> sequences;
  Json events = Json::array();
  for (const auto& row : list) {
    sequences.push_back(row["sequence"].get<int64_t>());
    events.push_back(row["event_id"]);
  }
  if (!context.json) {
    PrintRows(list, kShown, context.plan_out());
    if (list.size() > kShown) Print(context.plan_out(), "… and {} more\n", list.size() - kShown);
  }
  // What is confirmed is what is done: these rows, whatever fits the filter meanwhile.
  RETURN_IF_ERROR(
      context.Confirm(fmt::format("This will {} {} row{} of {}.", action, list.size(),
                                  list.size() == 1 ? "" : "s", options.table),
                      {{"action", action}, {"count", list.size()}, {"events", events}}));
  const auto changed = publisher::ChangeRows(*connection, table, action, sequences,
                                             OperatorAtHost(), context.reason);
  if (!changed.ok()) return ExplainMissing(changed.status(), &table);
  return context.Answer({{"action", action}, {"rows", *changed}},
                        [&] { Print("{}: {} rows\n", action, *changed); });
}

}  // namespace

void AddOutbox(const Command& program) {
  const Command outbox = program.AddGroup("outbox", "outboxes and their rows");
  const auto o = std::make_shared<OutboxOptions>();
  const Option table{"table", &o->table, "the outbox, as schema.name", Option::kRequired};
  const std::vector<Option> filter = {
      {"--key", &o->filter.key, "an aggregate: its id (the ordering key), or as the list has it"},
      {"--tenant", &o->filter.tenant, "a tenant"},
      {"--topic", &o->filter.topic, "a logical topic"},
      {"--type", &o->filter.type, "an event type"},
      {"--code", &o->filter.code, "an error code, such as UNKNOWN.INTERNAL"},
      {"--older-than", &o->older_than, "enqueued longer ago, such as 1h"}};
  const char* const kNotAgain =
      "what was sent to a target_space is not sent there again for so long, such as 24h";

  outbox.Add("list", "the outboxes of the database; of one that is named, its rows", o, ListRows)
      .With({{"table", &o->table, "an outbox, as schema.name"},
             {"--state",
              &o->state,
              "rows in this state; unpublished are pending, dead and quarantined ones",
              Option::kShowsDefault,
              {"unpublished", "pending", "dead", "quarantined", "published", "any"}}})
      .With(filter)
      .With({{"--limit", &o->limit, "rows to show", Option::kShowsDefault, {}, 1'000'000}});
  outbox.Add("show", "one row with its history", o, ShowRow)
      .With({table, {"event", &o->filter.events, "its event's id", Option::kRequired}});
  const auto change = [&](const char* name, const char* help, RowState state,
                          Command::Reason reason) {
    outbox.Add(name, help, o, Change, std::string(name), state)
        .With({table, {"event", &o->filter.events, "rows, by the ids of their events"}})
        .With(filter)
        .With({{"--all", &o->all, "all of them"}})
        .Changes(reason);
  };
  change("replay", "let dead rows start over", RowState::kDead, Command::kReason);
  change("quarantine", "keep rows from being published until they are released",
         RowState::kMayBeQuarantined, Command::kReasonRequired);
  change("release", "end a quarantine", RowState::kQuarantined, Command::kReason);
  outbox.Add("create", "make an outbox, its constraints and indexes", o, Create)
      .With({table,
             {"--shards", &o->shards, "parts that publishers share it by", Option::kShowsDefault},
             {"--content-dedup", &o->dedup_window, kNotAgain},
             {"--partition", &o->partition,
              "day or hour: published rows go with their partition, all at once. An event id and a "
              "version are "
              "unique as without, except to a REPEATABLE READ transaction across the change of the "
              "day (docs/publisher.md)"}})
      .Changes(Command::kNoReason);
  outbox.Add("content-dedup", "turn content dedup on or off", o, ContentDedup)
      .With({table,
             {"--window", &o->dedup_window, fmt::format("{}; 0 = off", kNotAgain),
              Option::kRequired}})
      .Changes(Command::kNoReason);
  outbox.Add("drop", "take an outbox away; refused while rows are unpublished", o, Drop)
      .With({table, {"--force", &o->force, "drop unpublished rows too"}})
      .Changes(Command::kNoReason);
}

}  // namespace lockstep::ctl
