// lockstepctl outbox pending | dead | show | replay | quarantine | release.
#include "ctl/outbox_rows.h"

#include <fmt/format.h>
#include <unistd.h>

#include <optional>

#include "ctl/group_context.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"

namespace lockstep::ctl {
namespace {

using postgres::Array;
using postgres::Params;
using postgres::Result;

struct Options {
  std::string table;
  std::string event;
  std::string key;
  std::string tenant;
  std::string topic;
  std::string type;
  std::string code;
  std::string older_than;
  std::string note;
  int limit = 50;

  bool Filters() const {
    return !event.empty() || !key.empty() || !tenant.empty() || !topic.empty() || !type.empty() ||
           !code.empty() || !older_than.empty();
  }
};

// {0} the outbox, {1} which rows, {2} the payload's size; parameters as FilterParams gives them.
// Never the payload.
constexpr char kSelect[] = R"sql(
SELECT sequence, event_id, tenant_id, topic, aggregate_type, aggregate_id, event_type, version, attempts,
       available_at::text, published_at::text, dead_at::text, quarantined_at::text, locked_by, locked_at::text,
       lock_token IS NOT NULL, error_code, last_error, created_at::text, occurred_at::text, message_id,
       {2}, content_type, schema_version, traceparent
FROM {0}
WHERE {1} AND ($1::uuid IS NULL OR event_id = $1) AND ($2::text IS NULL OR aggregate_id = $2)
  AND ($3::text IS NULL OR tenant_id = $3) AND ($4::text IS NULL OR topic = $4)
  AND ($5::text IS NULL OR event_type = $5) AND ($6::text IS NULL OR error_code = $6)
  AND ($7::bigint IS NULL OR created_at < now() - $7 * interval '1 ms')
ORDER BY sequence LIMIT $8)sql";

constexpr char kMayReadPayload[] =
    "SELECT coalesce(has_column_privilege(to_regclass($1), 'payload', 'SELECT'), true)";

constexpr char kPending[] = "published_at IS NULL AND dead_at IS NULL AND quarantined_at IS NULL";
constexpr char kDead[] = "dead_at IS NOT NULL AND published_at IS NULL AND quarantined_at IS NULL";
constexpr char kQuarantined[] = "quarantined_at IS NOT NULL";
constexpr char kUnpublished[] = "published_at IS NULL AND quarantined_at IS NULL";
constexpr char kAny[] = "true";

constexpr char kAudit[] =
    "SELECT at::text, actor, action, note FROM lockstep.outbox_audit "
    "WHERE outbox = lockstep.outbox_name($1::regclass) AND sequence = $2 ORDER BY id";

std::optional<std::string> Given(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

absl::StatusOr<Params> FilterParams(const Options& options, int64_t limit) {
  Params params;
  params.Add(Given(options.event)).Add(Given(options.key)).Add(Given(options.tenant));
  params.Add(Given(options.topic)).Add(Given(options.type)).Add(Given(options.code));
  if (options.older_than.empty()) {
    params.Add(nullptr);
  } else {
    ASSIGN_OR_RETURN(const Millis age, ParseDuration(options.older_than));
    params.Add(age.count());
  }
  params.Add(limit);
  return params;
}

nlohmann::ordered_json Cell(const Result& rows, int row, int column) {
  const auto text = rows.Optional(row, column);
  return text.has_value() ? nlohmann::ordered_json(*text) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json Number(const Result& rows, int row, int column) {
  return rows.IsNull(row, column) ? nlohmann::ordered_json(nullptr)
                                  : nlohmann::ordered_json(rows.Int(row, column));
}

nlohmann::ordered_json RowJson(const Result& rows, int i) {
  return {{"sequence", rows.Int(i, 0)},          {"event_id", Cell(rows, i, 1)},
          {"tenant_id", Cell(rows, i, 2)},       {"topic", Cell(rows, i, 3)},
          {"aggregate_type", Cell(rows, i, 4)},  {"aggregate_id", Cell(rows, i, 5)},
          {"event_type", Cell(rows, i, 6)},      {"version", rows.Int(i, 7)},
          {"attempts", rows.Int(i, 8)},          {"available_at", Cell(rows, i, 9)},
          {"published_at", Cell(rows, i, 10)},   {"dead_at", Cell(rows, i, 11)},
          {"quarantined_at", Cell(rows, i, 12)}, {"locked_by", Cell(rows, i, 13)},
          {"locked_at", Cell(rows, i, 14)},      {"leased", rows.Bool(i, 15)},
          {"error_code", Cell(rows, i, 16)},     {"last_error", Cell(rows, i, 17)},
          {"created_at", Cell(rows, i, 18)},     {"occurred_at", Cell(rows, i, 19)},
          {"message_id", Cell(rows, i, 20)},     {"payload_bytes", Number(rows, i, 21)},
          {"content_type", Cell(rows, i, 22)},   {"schema_version", rows.Int(i, 23)},
          {"traceparent", Cell(rows, i, 24)}};
}

void PrintRow(const nlohmann::ordered_json& row) {
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

absl::StatusOr<nlohmann::ordered_json> Select(postgres::Connection& connection,
                                              const Options& options, const char* which,
                                              int64_t limit) {
  ASSIGN_OR_RETURN(const auto table, postgres::QualifiedName::Parse(options.table));
  ASSIGN_OR_RETURN(const Params params, FilterParams(options, limit));
  // A reader and an operator have no right to payloads, and so not to their size either.
  const auto right = connection.Execute(kMayReadPayload, table.Quoted());
  if (!right.ok()) return ExplainMissing(right.status());
  const char* const size = right->Bool(0, 0) ? "octet_length(payload)" : "NULL::int";
  const auto rows =
      connection.Execute(fmt::format(fmt::runtime(kSelect), table.Quoted(), which, size), params);
  if (postgres::SqlState(rows.status()) == "22P02") {  // of all that is asked for, only ids can be
    return InvalidArgument("--event: '{}' is not an event id (a UUID)", options.event);
  }
  if (!rows.ok()) return ExplainMissing(rows.status(), &table);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (int i = 0; i < rows->rows(); ++i) list.push_back(RowJson(*rows, i));
  return list;
}

absl::Status List(const Context& context, const Options& options, const char* which) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(const auto list, Select(*connection, options, which, options.limit));
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
  if (options.event.empty()) return InvalidArgument("name the event with --event");
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(auto list, Select(*connection, options, kAny, 1));
  if (list.empty()) return NotFound("{} has no event {}", options.table, options.event);
  auto& row = list[0];
  ASSIGN_OR_RETURN(const auto table, postgres::QualifiedName::Parse(options.table));
  ASSIGN_OR_RETURN(const auto audit,
                   connection->Execute(kAudit, table.Quoted(), row["sequence"].get<int64_t>()));
  row["audit"] = nlohmann::ordered_json::array();
  for (int i = 0; i < audit.rows(); ++i) {
    row["audit"].push_back({{"at", Cell(audit, i, 0)},
                            {"actor", Cell(audit, i, 1)},
                            {"action", Cell(audit, i, 2)},
                            {"note", Cell(audit, i, 3)}});
  }
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

// `verb` is also the name of the SQL function that does it.
absl::Status Change(const Context& context, const Options& options, const char* verb,
                    const char* which) {
  if (!options.Filters()) {
    return InvalidArgument(
        "say which rows: --event, --key, or a filter (--tenant, --topic, --type, --code, "
        "--older-than)");
  }
  if (std::string_view(verb) == "quarantine" && options.note.empty()) {
    return InvalidArgument("say why with --note: the next reader will want to know");
  }
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(const auto list, Select(*connection, options, which, 1'000'000));
  if (list.empty()) return NotFound("no such rows in {}", options.table);
  Array sequences;
  for (const auto& row : list) sequences.Add(row["sequence"].get<int64_t>());
  if (!context.json) {
    for (size_t i = 0; i < list.size() && i < 20; ++i) PrintRow(list[i]);
    if (list.size() > 20) fmt::print("… and {} more\n", list.size() - 20);
  }
  if (!context.Confirm(fmt::format("This will {} {} row{} of {}.", verb, list.size(),
                                   list.size() == 1 ? "" : "s", options.table))) {
    return absl::CancelledError("nothing was changed");
  }
  ASSIGN_OR_RETURN(const auto table, postgres::QualifiedName::Parse(options.table));
  const auto changed = connection->Execute(
      fmt::format("SELECT lockstep.{}($1::regclass, $2::bigint[], $3, $4)", verb), table.Quoted(),
      sequences, Actor(), Given(options.note));
  if (!changed.ok()) return ExplainMissing(changed.status(), &table);
  context.Answer({{"action", verb}, {"rows", changed->Int(0, 0)}},
                 [&] { fmt::print("{}: {} rows\n", verb, changed->Int(0, 0)); });
  return absl::OkStatus();
}

}  // namespace

void AddOutboxRows(CLI::App& outbox, Context& context) {
  const auto options = std::make_shared<Options>();  // outlives this function with the callbacks
  const auto add = [&](const char* name, const char* help, const Run& run) {
    auto* command = outbox.add_subcommand(name, help);
    command->add_option("table", options->table, "schema.name")->required();
    command->add_option("--event", options->event, "one event, by its id");
    command->add_option("--key", options->key, "an aggregate's id (the ordering key)");
    command->add_option("--tenant", options->tenant, "a tenant");
    command->add_option("--topic", options->topic, "a logical topic");
    command->add_option("--type", options->type, "an event type");
    command->add_option("--code", options->code, "an error code, such as UNKNOWN.INTERNAL");
    command->add_option("--older-than", options->older_than, "enqueued longer ago, such as 1h");
    On(command, context, run);
    return command;
  };
  const auto list = [&](const char* name, const char* help, const char* which) {
    add(name, help, [options, which](const Context& c) { return List(c, *options, which); })
        ->add_option("--limit", options->limit, "rows to show")
        ->capture_default_str();
  };
  const auto change = [&](const char* name, const char* help, const char* which) {
    add(name, help, [options, name, which](const Context& c) {
      return Change(c, *options, name, which);
    })->add_option("--note", options->note, "why; kept in the audit");
  };
  list("pending", "rows that wait to be published", kPending);
  list("dead", "rows that were given up", kDead);
  list("quarantined", "rows that were taken aside", kQuarantined);
  add("show", "one row with its history",
      [options](const Context& c) { return Show(c, *options); });
  change("replay", "let dead rows start over", kDead);
  change("quarantine", "keep rows from being published until they are released", kUnpublished);
  change("release", "end a quarantine", kQuarantined);
}

}  // namespace lockstep::ctl
