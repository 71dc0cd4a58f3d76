// lockstepctl outbox: the outboxes of a database, and what an operator does to their rows.
#include <fmt/format.h>

#include "ctl/command/command.h"
#include "ctl/command/operator.h"
#include "ctl/command/print.h"
#include "platform/status.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"
#include "publisher/outbox/outbox_rows.h"
#include "publisher/outbox/outboxes.h"

namespace lockstep::ctl {
namespace {

using postgres::QualifiedName;
using publisher::RowState;

struct OutboxOptions {
  std::string table;
  int shards = 1;
  std::string dedup_window = "0";
  std::string partition;
  bool force = false;
  publisher::RowFilter filter;
  std::string older_than, note;
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
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(const Millis window, ParseDuration(options.dedup_window));
  const std::string& partition = options.partition;
  if (!partition.empty() && partition != "day" && partition != "hour") {
    return InvalidArgument("--partition: '{}' is neither day nor hour", partition);
  }
  const auto made = publisher::CreateOutbox(*connection, table, options.shards, window, partition);
  if (!made.ok()) return ExplainMissing(made.status());
  return context.Answer({{"outbox", *made}}, [&] { Print("{} is an outbox\n", *made); });
}

absl::Status ContentDedup(const Context& context, const OutboxOptions& options) {
  ASSIGN_OR_RETURN(const auto table, QualifiedName::Parse(options.table));
  ASSIGN_OR_RETURN(const Millis window, ParseDuration(options.dedup_window));
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  const absl::Status set = publisher::SetDedupWindow(*connection, table, window);
  if (!set.ok()) return ExplainMissing(set, &table);
  return context.Answer(
      {{"outbox", table.ToString()}, {"dedup_window", FormatDuration(window)}}, [&] {
        if (window == Millis(0)) {
          Print("{}: no content dedup\n", table.ToString());
        } else {
          Print("{}: what was sent to a target_space is not sent there again for {}\n",
                table.ToString(), FormatDuration(window));
        }
      });
}

absl::Status Drop(const Context& context, const OutboxOptions& options) {
  ASSIGN_OR_RETURN(const auto table, QualifiedName::Parse(options.table));
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  const auto waiting = publisher::CountUnpublished(*connection, table);
  if (!waiting.ok()) return ExplainMissing(waiting.status(), &table);
  RETURN_IF_ERROR(context.Confirm(fmt::format(
      "This drops {} with all its rows; {} of them are unpublished.", table.ToString(), *waiting)));
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
    if (list->empty()) Print("This database has no outbox.\n");
    for (const Json& outbox : *list) {
      const std::string unit = TextOf(outbox["partition"]);
      Print("{:<32} {:>4} shards {:>10} rows (about) {:>12} bytes{}\n", TextOf(outbox["outbox"]),
            TextOf(outbox["shards"]), TextOf(outbox["rows"]), TextOf(outbox["bytes"]),
            unit.empty() ? "" : fmt::format("  a partition per {}", unit));
    }
  });
}

const char* StateOf(const Json& row) {
  if (!row["published_at"].is_null()) return "published";
  if (!row["quarantined_at"].is_null()) return "quarantined";
  if (!row["dead_at"].is_null()) return "dead";
  if (row["leased"].get<bool>()) return "leased";
  return row["available_at"] == "infinity" ? "held" : "waits";
}

void PrintRow(const Json& row) {
  const auto text = [&](const char* column) { return TextOf(row[column]); };
  Print("{:>10}  {}  {:<11} {} {} v{}  {}  attempts {}{}\n", text("sequence"), text("event_id"),
        StateOf(row), text("aggregate_type"), text("aggregate_id"), text("version"), text("topic"),
        text("attempts"), row["last_error"].is_null() ? "" : "  " + text("last_error"));
}

absl::StatusOr<Json> Find(postgres::Connection& connection, const QualifiedName& table,
                          const OutboxOptions& options, RowState state, int64_t limit) {
  publisher::RowFilter filter = options.filter;
  if (!options.older_than.empty()) {
    ASSIGN_OR_RETURN(filter.older_than, ParseDuration(options.older_than));
  }
  auto rows = publisher::FindRows(connection, table, state, filter, limit);
  if (postgres::SqlState(rows.status()) == "22P02") {  // of all that is asked for, only ids can be
    return InvalidArgument("--event: '{}' is not an event id (a UUID)", filter.event);
  }
  if (!rows.ok()) return ExplainMissing(rows.status(), &table);
  return rows;
}

absl::Status ListRows(const Context& context, const OutboxOptions& options, RowState state) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(const auto table, QualifiedName::Parse(options.table));
  ASSIGN_OR_RETURN(const auto list, Find(*connection, table, options, state, options.limit));
  return context.Answer(list, [&] {
    if (list.empty()) Print("No such rows.\n");
    for (const auto& row : list) PrintRow(row);
    if (static_cast<int>(list.size()) == options.limit) {
      Print("The first {}; --limit shows more.\n", options.limit);
    }
  });
}

absl::Status ShowRow(const Context& context, const OutboxOptions& options) {
  if (options.filter.event.empty()) return InvalidArgument("name the event with --event");
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(const auto table, QualifiedName::Parse(options.table));
  ASSIGN_OR_RETURN(auto list, Find(*connection, table, options, RowState::kAny, 1));
  if (list.empty()) return NotFound("{} has no event {}", options.table, options.filter.event);
  auto& row = list[0];
  ASSIGN_OR_RETURN(row["audit"],
                   publisher::ReadAudit(*connection, table, row["sequence"].get<int64_t>()));
  return context.Answer(row, [&] {
    for (const auto& [name, value] : row.items()) {
      if (value.is_null() || name == "audit") continue;
      PrintMember(15, name, value);
    }
    for (const Json& entry : row["audit"]) {
      Print("audit           {} {} by {} (role {}){}\n", TextOf(entry["at"]),
            TextOf(entry["action"]), TextOf(entry["actor"]), TextOf(entry["role"]),
            entry["note"].is_null() ? "" : ": " + TextOf(entry["note"]));
    }
  });
}

absl::Status Change(const Context& context, const OutboxOptions& options, std::string action,
                    RowState state) {
  if (options.filter == publisher::RowFilter() && options.older_than.empty()) {
    return InvalidArgument(
        "say which rows: --event, --key, or a filter (--tenant, --topic, --type, --code, "
        "--older-than)");
  }
  if (action == "quarantine" && options.note.empty()) {
    return InvalidArgument("say why with --note: the next reader will want to know");
  }
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(const auto table, QualifiedName::Parse(options.table));
  ASSIGN_OR_RETURN(const auto list, Find(*connection, table, options, state, 1'000'000));
  if (list.empty()) return NotFound("no such rows in {}", options.table);
  std::vector<int64_t> sequences;
  for (const auto& row : list) sequences.push_back(row["sequence"].get<int64_t>());
  if (!context.json) {
    for (size_t i = 0; i < list.size() && i < 20; ++i) PrintRow(list[i]);
    if (list.size() > 20) Print("… and {} more\n", list.size() - 20);
  }
  RETURN_IF_ERROR(context.Confirm(fmt::format("This will {} {} row{} of {}.", action, list.size(),
                                              list.size() == 1 ? "" : "s", options.table)));
  const std::string actor = OperatorAtHost();
  const auto changed =
      publisher::ChangeRows(*connection, table, action, sequences, actor, options.note);
  if (!changed.ok()) return ExplainMissing(changed.status(), &table);
  return context.Answer({{"action", action}, {"rows", *changed}},
                        [&] { Print("{}: {} rows\n", action, *changed); });
}

}  // namespace

void AddOutbox(const Command& program) {
  const Command outbox = program.AddGroup("outbox", "outboxes and their rows");
  const auto o = std::make_shared<OutboxOptions>();
  const Option table{"table", &o->table, "schema.name", Option::kRequired};
  outbox.Add("create", "make an outbox, its constraints and indexes", o, Create)
      .With({table,
             {"--shards", &o->shards, "parts that publishers share it by", Option::kShowsDefault},
             {"--content-dedup", &o->dedup_window,
              "what was sent to a target_space is not sent there again for so long, such as 24h"},
             {"--partition", &o->partition,
              "day or hour: published rows go with their partition, all at once. An event id and a "
              "version are unique as without, except to a REPEATABLE READ transaction across the "
              "change of the day (docs/publisher.md)"}});
  outbox.Add("content-dedup", "turn content dedup on or off", o, ContentDedup)
      .With(
          {table,
           {"--window", &o->dedup_window,
            "what was sent to a target_space is not sent there again for so long, such as 24h; 0 = "
            "off",
            Option::kRequired}});
  outbox.Add("drop", "take an outbox away; refused while rows are unpublished", o, Drop)
      .With({table, {"--force", &o->force, "drop unpublished rows too"}});
  outbox.Add("list", "the outboxes of the database", ListOutboxes);

  const auto add = [&](const char* name, const char* help, auto... run) {
    return outbox.Add(name, help, o, run...)
        .With({table,
               {"--event", &o->filter.event, "one event, by its id"},
               {"--key", &o->filter.key, "an aggregate's id (the ordering key)"},
               {"--tenant", &o->filter.tenant, "a tenant"},
               {"--topic", &o->filter.topic, "a logical topic"},
               {"--type", &o->filter.type, "an event type"},
               {"--code", &o->filter.code, "an error code, such as UNKNOWN.INTERNAL"},
               {"--older-than", &o->older_than, "enqueued longer ago, such as 1h"}});
  };
  const auto list = [&](const char* name, const char* help, RowState state) {
    add(name, help, ListRows, state)
        .With({{"--limit", &o->limit, "rows to show", Option::kShowsDefault}});
  };
  const auto change = [&](const char* name, const char* help, RowState state) {
    add(name, help, Change, std::string(name), state)
        .With({{"--note", &o->note, "why; kept in the audit"}});
  };
  list("pending", "rows that wait to be published", RowState::kPending);
  list("dead", "rows that were given up", RowState::kDead);
  list("quarantined", "rows that were taken aside", RowState::kQuarantined);
  add("show", "one row with its history", ShowRow);
  change("replay", "let dead rows start over", RowState::kDead);
  change("quarantine", "keep rows from being published until they are released",
         RowState::kMayBeQuarantined);
  change("release", "end a quarantine", RowState::kQuarantined);
}

}  // namespace lockstep::ctl
