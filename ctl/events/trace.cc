// lockstepctl trace: one event from its outbox row to the read model, as far as it can be seen.
#include <fmt/format.h>

#include <algorithm>

#include "ctl/command/command.h"
#include "ctl/command/print.h"
#include "ctl/group/runner_context.h"
#include "ctl/source/source_database.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "postgres/sql_error.h"
#include "projections/tools/explain.h"
#include "publisher/outbox/event_ledger.h"
#include "publisher/outbox/outbox_rows.h"
#include "runner/status/event_tracer.h"
#include "state/events/event_fates.h"
#include "state/groups/overview.h"

namespace lockstep::ctl {
namespace {

struct TraceOptions {
  SourceDatabase source;
  std::string event, aggregate_type, aggregate_id, tenant, message;
  std::optional<int64_t> version;
  std::string group, schema;
};

// What is known of the event so far; each side adds to it.
struct Traced {
  state::EventFates::Event known;
  std::optional<envelope::Event> event;  // with its payload, if that could be read
  std::optional<WallTime> published;
  Json source = nullptr;
  Json groups = Json::array();
};

absl::Status CheckQuestion(const TraceOptions& options) {
  const bool aggregate = !options.aggregate_type.empty() && !options.aggregate_id.empty();
  const int ways = (options.event.empty() ? 0 : 1) + (options.message.empty() ? 0 : 1) +
                   (aggregate && options.version ? 1 : 0);
  if (ways == 1) return absl::OkStatus();
  return InvalidArgument(
      "name one event: its id; or --aggregate-type, --aggregate-id (and --tenant) with --version; "
      "or --message-id");
}

// "12ms", and which way.
std::string Between(const std::optional<WallTime>& from, const std::optional<WallTime>& to) {
  if (!from || !to) return "";
  const auto apart = std::chrono::duration_cast<Millis>(*to - *from);
  return apart < Millis(0) ? "-" + FormatDuration(-apart) : FormatDuration(apart);
}

absl::Status TraceSource(const TraceOptions& options, Traced& traced) {
  ASSIGN_OR_RETURN(const auto connection, options.source.Connect());
  ASSIGN_OR_RETURN(const auto tables, options.source.Tables(*connection));
  publisher::RowFilter filter;
  if (!options.event.empty()) filter.events = {options.event};
  filter.aggregate_type = options.aggregate_type;
  filter.key = options.aggregate_id;
  filter.tenant = options.tenant;
  filter.version = options.version;
  filter.message_id = options.message;
  for (const postgres::QualifiedName& table : tables) {
    auto rows = publisher::FindRows(*connection, table, publisher::RowState::kAny, filter, 2);
    if (postgres::SqlState(rows.status()) == "22P02") {
      return InvalidArgument("'{}' is not an event id (a UUID)", options.event);
    }
    RETURN_IF_ERROR(rows.status());
    if (rows->empty()) continue;
    if (rows->size() > 1 || !traced.source.is_null()) {
      return InvalidArgument("there are several such events: name one with --tenant or its id");
    }
    Json row = (*rows)[0];
    const int64_t sequence = row["sequence"].get<int64_t>();
    ASSIGN_OR_RETURN(const auto ledger, publisher::ReadLedgerRow(*connection, table, sequence));
    traced.known = {ledger.event_id, ledger.aggregate_key, ledger.version, ledger.message_id};
    traced.published = ledger.published;
    auto event = publisher::LoadEvent(*connection, table, sequence);
    if (event.ok()) traced.event = *std::move(event);  // else its payload is not for us
    row["outbox"] = table.ToString();
    row["state"] = ledger.state;
    traced.source = std::move(row);
  }
  return absl::OkStatus();
}

// The rows that the event maps to, and the version that stands there.
absl::Status TraceRows(RunnerContext& runner, const std::string& name, const Traced& traced,
                       Json& group) {
  group["rows"] = nullptr;
  const auto configured = std::ranges::find_if(
      runner.options.groups,
      [&](const runner::ConfiguredGroup& one) { return one.options.name == name; });
  if (configured == runner.options.groups.end() || !traced.event) return absl::OkStatus();
  const projections::GroupProjector& projector = *configured->declaration->projector;
  auto rows = projections::Explain(projector, *traced.event);
  if (!rows.ok()) {
    group["poison"] = MessageOf(rows.status());
    return absl::OkStatus();
  }
  group["rows"] = Json::array();
  ASSIGN_OR_RETURN(auto guards,
                   projections::GuardPreview::Open(projector.plan(), *runner.connection));
  for (projections::ExplainedRow& row : *rows) {
    RETURN_IF_ERROR(guards.Judge(*traced.event, &row));
    Json key = Json::object();
    for (const auto& [column, value] : row.key) key[column] = value;
    group["rows"].push_back({{"table", row.table},
                             {"operation", row.operation},
                             {"key", key},
                             {"stored_version", OrNull(row.guard->stored_version)},
                             {"deleted", row.guard->stored_deleted}});
  }
  return absl::OkStatus();
}

absl::Status TraceGroup(RunnerContext& runner, const std::string& name, Traced& traced) {
  const ConsumerGroup consumer(name);
  ASSIGN_OR_RETURN(const state::GroupEpoch epoch,
                   state::Epochs(runner.schema(), consumer).Load(*runner.connection));
  ASSIGN_OR_RETURN(const state::TracedEvent found,
                   state::EventFates(runner.schema(), consumer)
                       .Trace(*runner.connection, epoch.generation, traced.known));
  traced.known = found.event;
  Json group = runner::TraceJson(name, found);
  group["published_to_received"] =
      Between(traced.published ? traced.published : found.published, found.received_at);
  RETURN_IF_ERROR(TraceRows(runner, name, traced, group));
  traced.groups.push_back(std::move(group));
  return absl::OkStatus();
}

absl::Status TraceConsumer(const Context& context, const TraceOptions& options, Traced& traced) {
  ASSIGN_OR_RETURN(RunnerContext runner, OpenRunner(context, options.schema));
  RETURN_IF_ERROR(runner.connection->Run("SET default_transaction_read_only = on"));
  ASSIGN_OR_RETURN(const auto positions,
                   state::Overview(runner.schema()).Positions(*runner.connection, options.group));
  if (positions.empty()) {
    return NotFound("there is no group {}in schema '{}'",
                    options.group.empty() ? "" : fmt::format("'{}' ", options.group),
                    runner.options.state_schema);
  }
  for (const postgres::Row row : positions) {
    RETURN_IF_ERROR(TraceGroup(runner, row.String("group_name"), traced));
  }
  return absl::OkStatus();
}

void PrintSource(const Traced& traced) {
  const Json& row = traced.source;
  Print("outbox   {} row {}, {}: {} v{}\n", TextOf(row["outbox"]), TextOf(row["sequence"]),
        TextOf(row["state"]), traced.known.aggregate_key, traced.known.version.value_or(0));
  Print("  occurred   {}\n", TextOf(row["occurred_at"]));
  Print("  enqueued   {}\n", TextOf(row["created_at"]));
  if (traced.published) {
    Print("  published  {}  as message {}\n", FormatTimestamp(*traced.published),
          traced.known.message_id);
  } else {
    Print("  not published, {} attempts{}\n", TextOf(row["attempts"]),
          row["last_error"].is_null() ? "" : ": " + TextOf(row["last_error"]));
  }
}

void PrintGroup(const Json& group) {
  Print("group    {}: {}{}\n", TextOf(group["group"]), TextOf(group["verdict"]),
        group["reason"].is_string() ? ": " + TextOf(group["reason"]) : "");
  if (group["received_at"].is_string()) {
    const std::string after = TextOf(group["published_to_received"]);
    Print("  received   {}{}\n", TextOf(group["received_at"]),
          after.empty() ? "" : fmt::format("  ({} after it was published)", after));
  }
  if (group["parked_at"].is_string()) Print("  parked     {}\n", TextOf(group["parked_at"]));
  if (group["dead_at"].is_string()) Print("  dead       {}\n", TextOf(group["dead_at"]));
  if (group["resolved_at"].is_string()) Print("  resolved   {}\n", TextOf(group["resolved_at"]));
  if (group.contains("poison")) Print("  can't be mapped: {}\n", TextOf(group["poison"]));
  if (!group["rows"].is_array()) return;
  if (group["rows"].empty()) Print("  no row: the event is ignored\n");
  for (const Json& row : group["rows"]) {
    Print("  row        {} {}: {}{}\n", TextOf(row["table"]), row["key"].dump(),
          row["stored_version"].is_null() ? "not there"
                                          : "has version " + TextOf(row["stored_version"]),
          row["deleted"] == true ? ", deleted" : "");
  }
}

absl::Status TraceEvent(const Context& context, const TraceOptions& options) {
  RETURN_IF_ERROR(CheckQuestion(options));
  Traced traced;
  traced.known = {.event_id = options.event,
                  .aggregate_key = {},
                  .version = options.version,
                  .message_id = options.message};
  if (!options.aggregate_id.empty()) {
    traced.known.aggregate_key = envelope::AggregateKey(
        {.tenant_id = options.tenant.empty() ? std::nullopt : std::optional(options.tenant),
         .type = options.aggregate_type,
         .id = options.aggregate_id});
  }
  ASSIGN_OR_RETURN(const std::string database, context.Database());
  if (!options.source.given() && database.empty()) {
    return InvalidArgument(
        "name a database: the consumer's with --database or --config, the source's with --source, "
        "or both");
  }
  if (options.source.given()) RETURN_IF_ERROR(TraceSource(options, traced));
  if (!database.empty()) RETURN_IF_ERROR(TraceConsumer(context, options, traced));
  const Json answer = {{"event_id", traced.known.event_id},
                       {"aggregate", traced.known.aggregate_key},
                       {"version", OrNull(traced.known.version)},
                       {"message_id", traced.known.message_id},
                       {"outbox", traced.source},
                       {"groups", traced.groups}};
  return context.Answer(answer, [&] {
    Print("event    {}\n", traced.known.event_id.empty() ? "?" : traced.known.event_id);
    if (!traced.source.is_null()) {
      PrintSource(traced);
    } else if (options.source.given()) {
      Print("outbox   no such row: it was never enqueued, or was cleaned away since\n");
    }
    for (const Json& group : traced.groups) PrintGroup(group);
  });
}

}  // namespace

void AddTrace(const Command& program) {
  const auto o = std::make_shared<TraceOptions>();
  program.Add("trace", "follow one event from its outbox row to the read model", o, TraceEvent)
      .With({{"event", &o->event, "its id"},
             {"--aggregate-type", &o->aggregate_type, "or its aggregate …"},
             {"--aggregate-id", &o->aggregate_id, "…"},
             {"--tenant", &o->tenant, "… of that tenant …"},
             {"--version", &o->version, "… and version"},
             {"--message-id", &o->message, "or the id that Pub/Sub gave its message"},
             {"--source", &o->source.url,
              "the source's Postgres, as postgresql://user@host/database"},
             {"--source-password-file", &o->source.password_file, "a file that has its password"},
             {"--outbox", &o->source.outboxes, "its outbox, as schema.name; without it, all"},
             {"--group", &o->group, "one consumer group; without it, all of the state schema"},
             {"--schema", &o->schema, "the service's state schema; the file's"}});
}

}  // namespace lockstep::ctl
