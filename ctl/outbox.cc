// lockstepctl outbox: the outboxes of a database, and what an operator does to their rows.
#include <fmt/format.h>
#include <unistd.h>

#include "ctl/command.h"
#include "ctl/group_context.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"
#include "publisher/outbox/outbox_rows.h"
#include "publisher/outbox/outboxes.h"

namespace lockstep::ctl {
namespace {

using nlohmann::ordered_json;
using postgres::QualifiedName;
using publisher::RowState;

struct Options {
  std::string table;
  int shards = 1;
  bool force = false;
  publisher::RowFilter filter;
  std::string older_than;
  std::string note;
  int limit = 50;
};

// A missing schema or function is a database that was never migrated: says so. A missing `table` is
// no outbox: says where to look.
absl::Status ExplainMissing(const absl::Status& status, const QualifiedName* table = nullptr) {
  const std::string state = postgres::SqlState(status);
  const auto names = [&](const std::string& text) {
    return MessageOf(status).find(text) != std::string_view::npos;
  };
  const bool no_table = table != nullptr && state == "42P01" &&
                        names(fmt::format("\"{}.{}\"", table->schema, table->name));
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

absl::Status Create(const Context& context, const Options& options) {
  ASSIGN_OR_RETURN(const auto table, QualifiedName::Parse(options.table));
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  const auto made = publisher::CreateOutbox(*connection, table, options.shards);
  if (!made.ok()) return ExplainMissing(made.status());
  context.Answer({{"outbox", *made}}, [&] { fmt::print("{} is an outbox\n", *made); });
  return absl::OkStatus();
}

absl::Status Drop(const Context& context, const Options& options) {
  ASSIGN_OR_RETURN(const auto table, QualifiedName::Parse(options.table));
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  const auto waiting = publisher::CountUnpublished(*connection, table);
  if (!waiting.ok()) return ExplainMissing(waiting.status(), &table);
  if (!context.Confirm(fmt::format("This drops {} with all its rows; {} of them are unpublished.",
                                   table.ToString(), *waiting))) {
    return absl::CancelledError("nothing was changed");
  }
  const absl::Status dropped = publisher::DropOutbox(*connection, table, options.force);
  if (!dropped.ok()) return ExplainMissing(dropped, &table);
  context.Answer({{"dropped", table.ToString()}},
                 [&] { fmt::print("{} is gone\n", table.ToString()); });
  return absl::OkStatus();
}

absl::Status ListOutboxes(const Context& context) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  const auto list = publisher::ListOutboxes(*connection);
  if (!list.ok()) return ExplainMissing(list.status());
  context.Answer(*list, [&] {
    if (list->empty()) fmt::print("This database has no outbox.\n");
    for (const auto& outbox : *list) {
      fmt::print("{:<32} {:>4} shards {:>10} rows (about) {:>12} bytes\n",
                 outbox["outbox"].get<std::string>(), outbox["shards"].get<int>(),
                 outbox["rows"].get<int64_t>(), outbox["bytes"].get<int64_t>());
    }
  });
  return absl::OkStatus();
}

void PrintRow(const ordered_json& row) {
  std::string state = "waits";
  if (!row["published_at"].is_null()) {
    state = "published";
  } else if (!row["quarantined_at"].is_null()) {
    state = "quarantined";
  } else if (!row["dead_at"].is_null()) {
    state = "dead";
  } else if (row["leased"].get<bool>()) {
    state = "leased";
  } else if (row["available_at"] == "infinity") {
    state = "held";
  }
  fmt::print("{:>10}  {}  {:<11} {} {} v{}  {}  attempts {}{}\n", row["sequence"].get<int64_t>(),
             row["event_id"].get<std::string>(), state, row["aggregate_type"].get<std::string>(),
             row["aggregate_id"].get<std::string>(), row["version"].get<int64_t>(),
             row["topic"].get<std::string>(), row["attempts"].get<int64_t>(),
             row["last_error"].is_null() ? "" : "  " + row["last_error"].get<std::string>());
}

absl::StatusOr<ordered_json> Find(postgres::Connection& connection, const QualifiedName& table,
                                  const Options& options, RowState state, int64_t limit) {
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

absl::Status ListRows(const Context& context, const Options& options, RowState state) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(const auto table, QualifiedName::Parse(options.table));
  ASSIGN_OR_RETURN(const auto list, Find(*connection, table, options, state, options.limit));
  context.Answer(list, [&] {
    if (list.empty()) fmt::print("No such rows.\n");
    for (const auto& row : list) PrintRow(row);
    if (static_cast<int>(list.size()) == options.limit) {
      fmt::print("The first {}; --limit shows more.\n", options.limit);
    }
  });
  return absl::OkStatus();
}

absl::Status Show(const Context& context, const Options& options) {
  if (options.filter.event.empty()) return InvalidArgument("name the event with --event");
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(const auto table, QualifiedName::Parse(options.table));
  ASSIGN_OR_RETURN(auto list, Find(*connection, table, options, RowState::kAny, 1));
  if (list.empty()) return NotFound("{} has no event {}", options.table, options.filter.event);
  auto& row = list[0];
  ASSIGN_OR_RETURN(row["audit"],
                   publisher::ReadAudit(*connection, table, row["sequence"].get<int64_t>()));
  context.Answer(row, [&] {
    for (const auto& [name, value] : row.items()) {
      if (value.is_null() || name == "audit") continue;
      fmt::print("{:<15} {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
    }
    for (const auto& entry : row["audit"]) {
      fmt::print("audit           {} {} by {}{}\n", entry["at"].get<std::string>(),
                 entry["action"].get<std::string>(), entry["actor"].get<std::string>(),
                 entry["note"].is_null() ? "" : ": " + entry["note"].get<std::string>());
    }
  });
  return absl::OkStatus();
}

std::string Actor() {
  char host[256] = "localhost";
  ::gethostname(host, sizeof(host) - 1);
  return fmt::format("{}@{}", OperatorName(), host);
}

absl::Status Change(const Context& context, const Options& options, const std::string& action,
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
    if (list.size() > 20) fmt::print("… and {} more\n", list.size() - 20);
  }
  if (!context.Confirm(fmt::format("This will {} {} row{} of {}.", action, list.size(),
                                   list.size() == 1 ? "" : "s", options.table))) {
    return absl::CancelledError("nothing was changed");
  }
  const auto changed =
      publisher::ChangeRows(*connection, table, action, sequences, Actor(), options.note);
  if (!changed.ok()) return ExplainMissing(changed.status(), &table);
  context.Answer({{"action", action}, {"rows", *changed}},
                 [&] { fmt::print("{}: {} rows\n", action, *changed); });
  return absl::OkStatus();
}

}  // namespace

void AddOutbox(const Command& program) {
  const Command outbox = program.AddGroup("outbox", "outboxes and their rows");
  const auto options = std::make_shared<Options>();  // outlives this function with the callbacks
  outbox
      .Add("create", "make an outbox, its constraints and indexes",
           [options](const Context& c) { return Create(c, *options); })
      .Required("table", options->table, "schema.name")
      .WithDefault("--shards", options->shards, "parts that publishers share it by");
  outbox
      .Add("drop", "take an outbox away; refused while rows are unpublished",
           [options](const Context& c) { return Drop(c, *options); })
      .Required("table", options->table, "schema.name")
      .Flag("--force", options->force, "drop unpublished rows too");
  outbox.Add("list", "the outboxes of the database", ListOutboxes);

  const auto add = [&](const char* name, const char* help, const Run& run) {
    return outbox.Add(name, help, run)
        .Required("table", options->table, "schema.name")
        .Option("--event", options->filter.event, "one event, by its id")
        .Option("--key", options->filter.key, "an aggregate's id (the ordering key)")
        .Option("--tenant", options->filter.tenant, "a tenant")
        .Option("--topic", options->filter.topic, "a logical topic")
        .Option("--type", options->filter.type, "an event type")
        .Option("--code", options->filter.code, "an error code, such as UNKNOWN.INTERNAL")
        .Option("--older-than", options->older_than, "enqueued longer ago, such as 1h");
  };
  const auto list = [&](const char* name, const char* help, RowState state) {
    add(name, help, [options, state](const Context& c) {
      return ListRows(c, *options, state);
    }).WithDefault("--limit", options->limit, "rows to show");
  };
  const auto change = [&](const char* name, const char* help, RowState state) {
    add(name, help, [options, name, state](const Context& c) {
      return Change(c, *options, name, state);
    }).Option("--note", options->note, "why; kept in the audit");
  };
  list("pending", "rows that wait to be published", RowState::kPending);
  list("dead", "rows that were given up", RowState::kDead);
  list("quarantined", "rows that were taken aside", RowState::kQuarantined);
  add("show", "one row with its history",
      [options](const Context& c) { return Show(c, *options); });
  change("replay", "let dead rows start over", RowState::kDead);
  change("quarantine", "keep rows from being published until they are released",
         RowState::kMayBeQuarantined);
  change("release", "end a quarantine", RowState::kQuarantined);
}

}  // namespace lockstep::ctl
