// lockstepctl backfill: rows of a source that the publisher sends as snapshots.
#include "ctl/source/backfill.h"

#include <fmt/format.h>

#include "ctl/command/command.h"
#include "ctl/command/operator.h"
#include "ctl/command/print.h"
#include "ctl/command/table.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "publisher/backfill/backfill_store.h"
#include "publisher/backfill/source_check.h"

namespace lockstep::ctl {
namespace {

using publisher::BackfillRecord;
using publisher::BackfillStore;

struct BackfillCommand {
  std::string file, name, outbox;
  bool quick = false, watch = false;
  int limit = 20;
};

std::string BackfillTime(int64_t rows, int64_t rows_per_second) {
  if (rows_per_second == 0) return "as fast as the source and Pub/Sub go";
  return fmt::format("{} or more at {} rows/s", About(Millis(rows * 1000 / rows_per_second)),
                     rows_per_second);
}

void PrintSourceReport(const publisher::Declaration& declaration,
                       const publisher::SourceReport& report, std::FILE* to) {
  for (const std::string& problem : report.problems) Print(to, "problem: {}\n", problem);
  for (const std::string& warning : report.warnings) Print(to, "warning: {}\n", warning);
  Print(to, "{}: {}{} rows of {}; {}\n", declaration.name, report.counted ? "" : "about ",
        report.rows, declaration.SourceName(),
        BackfillTime(report.rows, declaration.rows_per_second));
}

absl::Status CheckBackfill(const Context& context, const BackfillCommand& options) {
  ASSIGN_OR_RETURN(const auto declaration, publisher::LoadDeclaration(options.file));
  ASSIGN_OR_RETURN(const auto connection, context.Connect(kScanTimeout));
  ASSIGN_OR_RETURN(const auto report,
                   publisher::CheckSource(*connection, declaration, !options.quick));
  RETURN_IF_ERROR(
      context.Answer(report.ToJson(), [&] { PrintSourceReport(declaration, report, stdout); }));
  if (report.problems.empty()) return absl::OkStatus();
  return FailedPrecondition("backfill {} can't start: {} problem{}", declaration.name,
                            report.problems.size(), report.problems.size() == 1 ? "" : "s");
}

absl::Status WatchBackfill(const Context& context, const std::string& id);

absl::Status StartOne(const Context& context, const BackfillCommand& options) {
  ASSIGN_OR_RETURN(const auto declaration, publisher::LoadDeclaration(options.file));
  ASSIGN_OR_RETURN(const auto connection, context.Connect(kScanTimeout));
  ASSIGN_OR_RETURN(const std::string id,
                   StartBackfill(context, *connection, declaration, options.quick));
  RETURN_IF_ERROR(context.Answer({{"id", id}, {"backfill", declaration.name}}, [&] {
    Print("backfill {} is {}; lockstepctl backfill status {} --watch follows it\n",
          declaration.name, id, declaration.name);
  }));
  return options.watch ? WatchBackfill(context, id) : absl::OkStatus();
}

// What is left at the pace since it began; nullopt = no telling.
std::optional<Millis> BackfillTimeLeft(const BackfillRecord& record) {
  if (record.state != "running" || !record.begun_at || !record.progress_at) return std::nullopt;
  const auto spent = std::chrono::duration_cast<Millis>(*record.progress_at - *record.begun_at);
  const int64_t left = record.rows_expected - record.rows_done;
  if (record.rows_done == 0 || left <= 0) return std::nullopt;
  return Millis(static_cast<int64_t>(static_cast<double>(spent.count()) / record.rows_done * left));
}

// The estimate may be short: only the end is 100.
int BackfillPercent(const BackfillRecord& record) {
  if (record.state == "done") return 100;
  if (record.rows_expected <= 0) return 0;
  return static_cast<int>(std::min<int64_t>(99, 100 * record.rows_done / record.rows_expected));
}

Json BackfillStatusJson(const BackfillRecord& record) {
  Json json = record.ToJson();
  const auto left = BackfillTimeLeft(record);
  json["percent"] = BackfillPercent(record);
  json["seconds_left"] = left ? Json(left->count() / 1000) : Json(nullptr);
  return json;
}

void PrintBackfill(const BackfillRecord& record) {
  constexpr int kWidth = 20;
  const int percent = BackfillPercent(record);
  const std::string bar(static_cast<size_t>(kWidth * percent / 100), '#');
  const auto left = BackfillTimeLeft(record);
  Print("{} {:<20} {:<9} [{:.<20}] {:>3}%  {} of {}{} rows{}{}{}\n", record.id,
        record.repair ? record.name + " (repair)" : record.name, record.state, bar, percent,
        record.rows_done, record.repair || record.state == "done" ? "" : "about ",
        record.state == "done" ? record.rows_done : record.rows_expected,
        left ? "  " + About(*left) + " left" : "",
        record.state == "running" && !record.leased ? "  waits for a publisher" : "",
        record.last_error.empty() ? "" : "  " + record.last_error);
}

absl::Status WatchBackfill(const Context& context, const std::string& id) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  BackfillStore store(*connection);
  ProgressPrinter progress(context.json);
  ASSIGN_OR_RETURN(const BackfillRecord record, FollowBackfill(store, id, progress, {}));
  RETURN_IF_ERROR(context.Answer(BackfillStatusJson(record), [&] { PrintBackfill(record); }));
  if (record.state != "failed") return absl::OkStatus();
  return FailedPrecondition("backfill {} has failed: {}", record.name, record.last_error);
}

absl::Status BackfillStatus(const Context& context, const BackfillCommand& options) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  BackfillStore store(*connection);
  ASSIGN_OR_RETURN(const BackfillRecord record, store.Find(options.name));
  if (options.watch) return WatchBackfill(context, record.id);
  Json json = BackfillStatusJson(record);
  json["declaration"] = record.declaration;
  ASSIGN_OR_RETURN(json["audit"], store.ReadAudit(record));
  for (Json& entry : json["audit"]) Rfc3339(entry, {"at"});
  return context.Answer(json, [&] {
    PrintBackfill(record);
    PrintMembers(json, {"declaration", "audit", "id", "name", "state", "percent"});
    if (json["audit"].empty()) return;
    Print("\n");
    using enum Table::Column::Kind;
    Table table({{"AT", kTime}, {"ACTION"}, {"BY"}, {"ROLE"}, {"REASON", kCut}});
    for (const Json& entry : json["audit"]) {
      table.Add({entry["at"], entry["action"], entry["actor"], entry["role"], entry["note"]});
    }
    table.Print();
  });
}

absl::Status ListBackfills(const Context& context, const BackfillCommand& options) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(const auto records,
                   BackfillStore(*connection).List(options.outbox, options.limit));
  return context.Answer(ListOf(records, BackfillStatusJson), [&] {
    if (records.empty()) return Print("There is no backfill.\n");
    using enum Table::Column::Kind;
    Table table({{"BACKFILL"},
                 {"STATE"},
                 {"PERCENT", kNumber},
                 {"ROWS", kNumber},
                 {"OF ABOUT", kNumber},
                 {"LEFT"},
                 {"BEGUN", kTime},
                 {"ID"},
                 {"ERROR", kCut}});
    for (const BackfillRecord& record : records) {
      const auto left = BackfillTimeLeft(record);
      const bool waits = record.state == "running" && !record.leased;
      table.Add({record.repair ? record.name + " (repair)" : record.name,
                 Table::Cell(waits ? "waits for a publisher" : record.state,
                             waits ? Style::kWarning : StyleOf(record.state)),
                 BackfillPercent(record), record.rows_done, record.rows_expected,
                 left ? About(*left) : "", OrNull(record.begun_at), record.id, record.last_error});
    }
    table.Print();
  });
}

absl::Status ChangeBackfill(const Context& context, const BackfillCommand& options,
                            BackfillStore::Change change) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  BackfillStore store(*connection);
  ASSIGN_OR_RETURN(const BackfillRecord record, store.Find(options.name));
  if (change == BackfillStore::Change::kCancel) {
    RETURN_IF_ERROR(context.Confirm(fmt::format(
        "This ends backfill {} after {} rows; what was sent stays sent, and it can't be resumed.",
        record.name, record.rows_done)));
  } else {
    RETURN_IF_ERROR(context.Announce(
        change == BackfillStore::Change::kPause
            ? fmt::format("Backfill {} rests where it is, after {} rows.", record.name,
                          record.rows_done)
            : fmt::format("Backfill {} goes on after {} rows.", record.name, record.rows_done)));
  }
  ASSIGN_OR_RETURN(const std::string state,
                   store.Apply(change, record.id, OperatorAtHost(), context.reason));
  return context.Answer({{"id", record.id}, {"backfill", record.name}, {"state", state}},
                        [&] { Print("backfill {} is {}\n", record.name, state); });
}

}  // namespace

absl::StatusOr<std::string> StartBackfill(const Context& context, postgres::Connection& source,
                                          const publisher::Declaration& declaration, bool quick,
                                          const std::string& id) {
  ASSIGN_OR_RETURN(const auto report, publisher::CheckSource(source, declaration, !quick));
  if (!context.json) PrintSourceReport(declaration, report, context.plan_out());
  if (!report.problems.empty()) {
    return FailedPrecondition("backfill {} was not started: {}", declaration.name,
                              fmt::join(report.problems, "; "));
  }
  RETURN_IF_ERROR(context.Confirm(
      fmt::format("This has the publisher of {} send every row of {} to topic {} as a snapshot.",
                  declaration.outbox.ToString(), declaration.SourceName(), declaration.topic)));
  return BackfillStore(source).Create(declaration, report.rows, OperatorAtHost(), context.reason,
                                      id);
}

void AddBackfill(const Command& program) {
  const Command backfill =
      program.AddGroup("backfill", "rows of a source, sent by its publisher as snapshots");
  const auto o = std::make_shared<BackfillCommand>();
  const Option file{"file", &o->file, "the backfill's YAML file", Option::kRequired};
  const Option name{"name", &o->name, "its name or id", Option::kRequired};
  const Option quick{"--quick", &o->quick, "ask the catalogue alone: no row is read"};
  const Option watch{"--watch", &o->watch, "follow it until it ends"};
  backfill.Add("check", "whether the source is fit: columns, keys, versions", o, CheckBackfill)
      .With({file, quick});
  backfill.Add("start", "check, then have the publisher send every row", o, StartOne)
      .With({file, quick, watch})
      .Changes();
  backfill.Add("status", "how far one has come, and what was done to it", o, BackfillStatus)
      .With({name, watch});
  backfill.Add("list", "the backfills of the database, the newest first", o, ListBackfills)
      .With({{"--outbox", &o->outbox, "of one outbox, as schema.name"},
             {"--limit", &o->limit, "how many", Option::kShowsDefault}});
  using enum BackfillStore::Change;
  backfill.Add("pause", "let it rest where it is", o, ChangeBackfill, kPause)
      .With({name})
      .Changes();
  backfill.Add("resume", "let one go on that was paused or has failed", o, ChangeBackfill, kResume)
      .With({name})
      .Changes();
  backfill.Add("cancel", "end it where it is", o, ChangeBackfill, kCancel).With({name}).Changes();
}

}  // namespace lockstep::ctl
