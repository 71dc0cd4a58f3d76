// lockstepctl outbox create | drop | list: the outboxes themselves. Their rows: outbox_rows.cc.
#include <fmt/format.h>

#include "ctl/command.h"
#include "ctl/outbox_rows.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"

namespace lockstep::ctl {
namespace {

using postgres::Params;

struct Options {
  std::string table;
  int shards = 1;
  bool force = false;
};

constexpr char kCreate[] = "SELECT lockstep.create_outbox($1, $2)::text";
constexpr char kDrop[] = "SELECT lockstep.drop_outbox($1::regclass, $2)";
constexpr char kList[] =
    "SELECT o.outbox::text, o.shards, coalesce(c.reltuples, 0)::bigint, "
    "pg_total_relation_size(o.outbox), o.created_at "
    "FROM lockstep.outboxes o JOIN pg_class c ON c.oid = o.outbox ORDER BY 1";
constexpr char kUnpublished[] = "SELECT count(*) FROM {} WHERE published_at IS NULL";

absl::Status Create(const Context& context, const Options& options) {
  ASSIGN_OR_RETURN(const auto table, postgres::QualifiedName::Parse(options.table));
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  const auto made = connection->Execute(kCreate, table.Quoted(), options.shards);
  if (!made.ok()) return ExplainMissing(made.status());
  context.Answer({{"outbox", std::string(made->Text(0, 0))}},
                 [&] { fmt::print("{} is an outbox\n", made->Text(0, 0)); });
  return absl::OkStatus();
}

absl::Status Drop(const Context& context, const Options& options) {
  ASSIGN_OR_RETURN(const auto table, postgres::QualifiedName::Parse(options.table));
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  const auto waiting = connection->Execute(fmt::format(fmt::runtime(kUnpublished), table.Quoted()));
  if (!waiting.ok()) return ExplainMissing(waiting.status(), &table);
  if (!context.Confirm(fmt::format("This drops {} with all its rows; {} of them are unpublished.",
                                   table.ToString(), waiting->Int(0, 0)))) {
    return absl::CancelledError("nothing was changed");
  }
  const auto dropped = connection->Execute(kDrop, table.Quoted(), options.force);
  if (!dropped.ok()) return ExplainMissing(dropped.status(), &table);
  context.Answer({{"dropped", table.ToString()}},
                 [&] { fmt::print("{} is gone\n", table.ToString()); });
  return absl::OkStatus();
}

absl::Status List(const Context& context) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  const auto rows = connection->Execute(kList);
  if (!rows.ok()) return ExplainMissing(rows.status());
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (int i = 0; i < rows->rows(); ++i) {
    list.push_back({{"outbox", std::string(rows->Text(i, 0))},
                    {"shards", rows->Int(i, 1)},
                    {"rows", std::max<int64_t>(0, rows->Int(i, 2))},
                    {"bytes", rows->Int(i, 3)},
                    {"created_at", std::string(rows->Text(i, 4))}});
  }
  context.Answer(list, [&] {
    if (list.empty()) fmt::print("This database has no outbox.\n");
    for (const auto& outbox : list) {
      fmt::print("{:<32} {:>4} shards {:>10} rows (about) {:>12} bytes\n",
                 outbox["outbox"].get<std::string>(), outbox["shards"].get<int>(),
                 outbox["rows"].get<int64_t>(), outbox["bytes"].get<int64_t>());
    }
  });
  return absl::OkStatus();
}

}  // namespace

absl::Status ExplainMissing(const absl::Status& status, const postgres::QualifiedName* table) {
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

void AddOutbox(CLI::App& app, Context& context) {
  auto* outbox = app.add_subcommand("outbox", "outboxes and their rows");
  outbox->require_subcommand(1);
  const auto options = std::make_shared<Options>();  // outlives this function with the callbacks
  const auto add = [&](const char* name, const char* help, const Run& run) {
    auto* command = outbox->add_subcommand(name, help);
    On(command, context, run);
    return command;
  };
  auto* create = add("create", "make an outbox, its constraints and indexes",
                     [options](const Context& c) { return Create(c, *options); });
  create->add_option("table", options->table, "schema.name")->required();
  create->add_option("--shards", options->shards, "parts that publishers share it by")
      ->capture_default_str();
  auto* drop = add("drop", "take an outbox away; refused while rows are unpublished",
                   [options](const Context& c) { return Drop(c, *options); });
  drop->add_option("table", options->table, "schema.name")->required();
  drop->add_flag("--force", options->force, "drop unpublished rows too");
  add("list", "the outboxes of the database", List);
  AddOutboxRows(*outbox, context);
}

}  // namespace lockstep::ctl
