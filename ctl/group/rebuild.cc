#include "operations/rebuild.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "ctl/command/command.h"
#include "ctl/command/operator.h"
#include "ctl/command/print.h"
#include "ctl/command/progress.h"
#include "ctl/command/when.h"
#include "ctl/group/runner_context.h"
#include "ctl/source/backfill.h"
#include "offsets/seek_target.h"
#include "platform/daemon/signals.h"
#include "platform/status.h"
#include "publisher/backfill/declaration.h"
#include "pubsub/names.h"

namespace lockstep::ctl {
namespace {

using state::RebuildRow;
using state::RebuildState;

constexpr size_t kShown = 5;  // rows of a kind of difference

struct RebuildOptions {
  std::string group, schema, from, keep_old = "24h";
  std::vector<std::string> declarations, ignored_columns;
  std::string source, source_password_file;
  bool accept_missing = false, accept_differences = false, now = false, keep_backfill = false;

  bool from_backfill() const { return from == "backfill"; }
};

absl::StatusOr<state::SeekTarget> ParseFrom(const std::string& text, const std::string& project) {
  using Kind = state::SeekTarget::Kind;
  if (const auto time = ParseWhen("--from", text); time.ok()) return state::SeekTarget::To(*time);
  const auto from = offsets::ParseSeekTarget(text, project);
  if (from && from->kind != Kind::kNone && from->kind != Kind::kLatest) return *from;
  return InvalidArgument(
      "--from is '{}', not earliest, backfill, checkpoint, snapshot:NAME or a time such as "
      "2026-01-31T12:00:00Z or '5m ago'",
      text);
}

std::string HowToGoOn(const RebuildRow& row, const std::string& group) {
  switch (row.state) {
    case RebuildState::kSwapped:
      return fmt::format(
          "the old slot is kept until {}: `rebuild rollback {}` goes back to it, `rebuild finish "
          "{}` removes it",
          FormatTimestamp(*row.swapped_at + row.keep_old), group, group);
    case RebuildState::kDiscarding:
      return fmt::format("slot {} is being removed: `rebuild resume {}` goes on with that",
                         row.discard_slot, group);
    case RebuildState::kPreparing:
    case RebuildState::kFilling:
      break;
  }
  return fmt::format("`rebuild resume {0}{1}` goes on, `rebuild abort {0}{1}` undoes it", group,
                     row.from_backfill() ? " --source …" : "");
}

// What a rebuild can't do without, and what means nothing to it.
absl::Status CheckFrom(const RebuildOptions& options) {
  if (options.from.empty()) {
    return InvalidArgument(
        "say where to begin with --from: earliest, backfill, checkpoint, snapshot:NAME or a time");
  }
  const bool named = !options.declarations.empty() && !options.source.empty();
  if (options.from_backfill() && !named) {
    return InvalidArgument(
        "--from backfill wants the backfill's file, with --declaration, and its database, with "
        "--source");
  }
  if (!options.from_backfill() && !options.declarations.empty()) {
    return InvalidArgument("--declaration goes with --from backfill");
  }
  return absl::OkStatus();
}

Json RebuildJson(const std::string& group, const RebuildRow& row) {
  return {{"group", group},
          {"state", Name(row.state)},
          {"from", row.from_backfill() ? "backfill" : row.seek.ToString()},
          {"backfills", row.from_backfill() ? Json(row.backfills) : Json()},
          {"old_slot", row.old_slot},
          {"new_slot", row.new_slot},
          {"old_subscription", row.old_subscription},
          {"new_subscription", row.new_subscription},
          {"new_snapshots", row.new_snapshots.empty() ? Json() : Json(row.new_snapshots)},
          {"tables", row.tables},
          {"began_at", FormatTimestamp(row.began_at)},
          {"swapped_at", OrNull(row.swapped_at)},
          {"keep_until",
           row.swapped_at ? Json(FormatTimestamp(*row.swapped_at + row.keep_old)) : Json()},
          {"operator", row.operator_name},
          {"reason", row.reason}};
}

// What a rebuild command works with, for as long as it runs.
class Session {
 public:
  static absl::StatusOr<std::unique_ptr<Session>> Open(const Context& context,
                                                       const RebuildOptions& options) {
    auto session = std::unique_ptr<Session>(new Session(context));
    ASSIGN_OR_RETURN(session->runner_, OpenGroup(context, options.group));
    // What large tables need is not cut short.
    ASSIGN_OR_RETURN(session->runner_.connection, context.Connect(Millis(0)));
    const runner::ConfiguredGroup& group = *session->runner_.group;
    ASSIGN_OR_RETURN(const std::string database, context.Database());
    std::vector<publisher::Declaration> backfills;
    for (const std::string& file : options.declarations) {
      ASSIGN_OR_RETURN(backfills.emplace_back(), publisher::LoadDeclaration(file));
    }
    if (!options.source.empty()) {
      ASSIGN_OR_RETURN(
          session->source_,
          context.At(options.source, options.source_password_file).Connect(kScanTimeout));
    }
    session->rebuild_ = std::make_unique<operations::Rebuild>(
        operations::Rebuild::Parts{.database = database,
                                   .state_schema = session->runner_.options.state_schema,
                                   .instance = fmt::format("lockstepctl-{}", getpid()),
                                   .transport = *session->runner_.transport,
                                   .options = group.options,
                                   .file = group.declaration->file,
                                   .backfills = std::move(backfills),
                                   .source = session->source_.get(),
                                   .ignored_columns = options.ignored_columns},
        *session->runner_.connection,
        operations::Rebuild::Listener{
            .progress = [&to = session->printer_](int64_t done,
                                                  int64_t total) { to.Show(done, total); },
            .note = [&to = session->printer_](const std::string& text) { to.Say(text); }});
    return session;
  }

  operations::Rebuild& rebuild() { return *rebuild_; }
  absl::StatusOr<state::GroupEpoch> LoadGroup(const std::string& group) {
    return state::Epochs(runner_.schema(), ConsumerGroup(group)).Load(*runner_.connection);
  }
  const runner::RunnerOptions& options() const { return runner_.options; }

  // Of a step that lost the database: how the rebuild stands, which is kept there, and how to go
  // on.
  absl::Status Explained(const absl::Status& ended, const std::string& group) const {
    if (ended.ok() || !runner_.connection->broken()) return ended;
    const auto fresh = context_.Connect();
    const auto row = fresh.ok()
                         ? state::Rebuilds(runner_.schema(), ConsumerGroup(group)).Load(**fresh)
                         : fresh.status();
    if (!row.ok()) {
      return Unavailable(
          "{}, and it can't be asked how the rebuild stands ({}). That is kept there, and nothing "
          "of it is lost: once it answers, `lockstepctl rebuild status {}` says how to go on",
          MessageOf(ended), MessageOf(row.status()), group);
    }
    if (!*row) {
      return Unavailable("{}. No rebuild of '{}' stands: it was not begun yet, or it is all done",
                         MessageOf(ended), group);
    }
    return Unavailable("{}. The rebuild is kept there, {}: {}", MessageOf(ended),
                       Name((*row)->state), HowToGoOn(**row, group));
  }

  // Until the slots are swapped; then or on differences the comparison is printed.
  absl::Status Drive(const RebuildOptions& options, const std::stop_token& stop) {
    const absl::Status driven =
        Explained(rebuild_->Resume(options.accept_differences, stop), options.group);
    printer_.EndLine();
    Compare();
    RETURN_IF_ERROR(driven);
    ASSIGN_OR_RETURN(const auto row, rebuild_->Load());
    return context_.Answer(row ? RebuildJson(options.group, *row) : Json(nullptr), [&] {
      Print("{}\n", row ? "Swapped: the runners go on with the new tables; " +
                              HowToGoOn(*row, options.group) + "."
                        : "Done: nothing is left of the rebuild.");
    });
  }

 private:
  explicit Session(const Context& context) : context_(context), printer_(context.json) {}

  void Compare() {
    const auto& swap = rebuild_->last_swap();
    if (!swap) return;
    for (const operations::TableComparison& table : swap->tables) {
      Print(stderr, "{}: {} rows, {} in the new table, {}\n", table.table, table.old_rows,
            table.new_rows, table.equal() ? "checksums equal" : "they differ");
      if (!table.not_compared.empty()) {
        Print(stderr, "  not compared: {}\n", fmt::join(table.not_compared, ", "));
      }
      PrintKinds(table);
    }
    if (swap->differs() && swap->ahead > 0) {
      Print(stderr, "The new tables are {} events ahead, which explains as many rows.\n",
            swap->ahead);
    }
  }

  // Many rows of one kind are told once, with a few of them.
  static void PrintKinds(const operations::TableComparison& table) {
    for (size_t i = 0; i < table.differences.size();) {
      const auto& first = table.differences[i];
      if (first.rows > 1) {
        Print(stderr, "  {}{} rows, each {}:\n", table.more ? "at least " : "", first.rows,
              first.what);
      }
      size_t shown = 0;
      for (; i < table.differences.size() && table.differences[i].what == first.what; ++i) {
        if (shown == kShown) continue;
        ++shown;
        Print(stderr, "  {}{} {}\n", first.rows > 1 ? "  " : "", table.differences[i].key,
              first.what);
      }
      if (first.rows > static_cast<int64_t>(shown)) {
        Print(stderr, "    … {} more\n", first.rows - static_cast<int64_t>(shown));
      }
    }
  }

  const Context& context_;
  RunnerContext runner_;
  std::unique_ptr<postgres::Connection> source_;
  std::unique_ptr<operations::Rebuild> rebuild_;
  ProgressPrinter printer_;
};

void PrintPlan(const std::string& group, const operations::RebuildPlan& plan, std::FILE* to) {
  const RebuildRow& row = plan.row;
  Print(to, "group         {}, slot {} -> {}\n", group, row.old_slot, row.new_slot);
  if (!row.from_backfill()) Print(to, "from          {}\n", row.seek.ToString());
  for (const auto& [name, id] : row.backfills) {
    Print(to, "from          backfill {}, which every consumer of its topic gets\n", name);
  }
  if (plan.earliest) {
    Print(to, "history       the topic reaches back to {}\n", FormatTimestamp(*plan.earliest));
  }
  if (plan.events > 0) Print(to, "events        about {}\n", plan.events);
  Print(to, "subscription  {} (new; the runners need roles/pubsub.subscriber on it)\n",
        row.new_subscription);
  if (!row.new_snapshots.empty()) {
    Print(to, "subscription  {} (new, for the snapshots)\n", row.new_snapshots);
  }
  for (const std::string& table : row.tables) {
    Print(to, "table         {} beside {}\n", table + row.shadow_suffix(), table);
  }
  Print(to, "old slot      kept {} after the swap\n", FormatDuration(row.keep_old));
}

absl::Status Start(const Context& context, const RebuildOptions& options) {
  if (options.group.empty()) return InvalidArgument("name the consumer group");
  RETURN_IF_ERROR(CheckFrom(options));
  Signals signals;  // before any thread is there
  ASSIGN_OR_RETURN(const auto session, Session::Open(context, options));
  RebuildRow wanted{.accept_missing = options.accept_missing,
                    .operator_name = OperatorName(),
                    .reason = context.reason};
  if (!options.from_backfill()) {
    ASSIGN_OR_RETURN(wanted.seek, ParseFrom(options.from, session->options().pubsub.project));
  }
  ASSIGN_OR_RETURN(wanted.keep_old, ParseDuration(options.keep_old));
  ASSIGN_OR_RETURN(const auto plan, session->rebuild().Plan(std::move(wanted)));
  PrintPlan(options.group, plan, context.plan_out());
  RETURN_IF_ERROR(context.Confirm("This fills new tables beside the live ones and swaps them.",
                                  RebuildJson(options.group, plan.row)));
  RETURN_IF_ERROR(session->Explained(session->rebuild().Begin(plan), options.group));
  return session->Drive(options, signals.stop_token());
}

absl::Status Resume(const Context& context, const RebuildOptions& options) {
  Signals signals;
  ASSIGN_OR_RETURN(const auto session, Session::Open(context, options));
  RETURN_IF_ERROR(context.Announce("This goes on filling the new tables, and swaps them."));
  return session->Drive(options, signals.stop_token());
}

absl::Status Status(const Context& context, const RebuildOptions& options) {
  ASSIGN_OR_RETURN(const auto runner, OpenRunner(context, options.schema));
  const state::Rebuilds rebuilds(runner.schema(), ConsumerGroup(options.group));
  ASSIGN_OR_RETURN(const auto row, rebuilds.Load(*runner.connection));
  return context.Answer(row ? RebuildJson(options.group, *row) : Json(nullptr), [&] {
    if (!row) return Print("There is no rebuild of '{}'.\n", options.group);
    Print("group   {}, slot {} -> {}\nstate   {}, begun {} by {}: {}\n", options.group,
          row->old_slot, row->new_slot, Name(row->state), FormatTimestamp(row->began_at),
          row->operator_name, row->reason);
    for (const auto& [name, id] : row->backfills) Print("from    backfill {} ({})\n", name, id);
    Print("next    {}\n", HowToGoOn(*row, options.group));
  });
}

// Which subscription the group reads now, and that no file need say so.
absl::StatusOr<std::string> WhatItReads(Session& session, const std::string& group) {
  ASSIGN_OR_RETURN(const auto live, session.LoadGroup(group));
  const std::string declared = pubsub::DeclaredSubscription(live.subscription);
  if (declared == live.subscription) return fmt::format(" The group reads {}.", declared);
  return fmt::format(
      " The group reads {}. Its files go on naming {}: runners find the slot's by the database, "
      "`lockstepctl provision` by its name.",
      live.subscription, declared);
}

// The commands that take one slot away.
absl::Status End(const Context& context, const RebuildOptions& options, const char* question,
                 const char* done, const std::function<absl::Status(operations::Rebuild&)>& may,
                 const std::function<absl::Status(operations::Rebuild&)>& end) {
  ASSIGN_OR_RETURN(const auto session, Session::Open(context, options));
  RETURN_IF_ERROR(may(session->rebuild()));
  RETURN_IF_ERROR(context.Confirm(question));
  RETURN_IF_ERROR(session->Explained(end(session->rebuild()), options.group));
  ASSIGN_OR_RETURN(const std::string reads, WhatItReads(*session, options.group));
  return context.Answer({{"group", options.group}, {"done", done + reads}},
                        [&] { Print("{}{}\n", done, reads); });
}

absl::Status Abort(const Context& context, const RebuildOptions& options) {
  return End(
      context, options, "This drops the new tables and their subscription.",
      "Undone: nothing is left of the rebuild.",
      [&](auto& rebuild) { return rebuild.MayAbort(options.keep_backfill).status(); },
      [&](auto& rebuild) { return rebuild.Abort(options.keep_backfill); });
}

absl::Status Rollback(const Context& context, const RebuildOptions& options) {
  return End(
      context, options, "This puts the old tables back in place and drops the new ones.",
      "Rolled back: the runners go on with the old tables and catch up.",
      [](auto& rebuild) { return rebuild.MayRollback().status(); },
      [&](auto& rebuild) { return rebuild.Rollback(OperatorName(), context.reason); });
}

absl::Status Finish(const Context& context, const RebuildOptions& options) {
  return End(
      context, options, "This drops the old tables and their subscription.",
      "Finished: the old slot is gone.",
      [&](auto& rebuild) { return rebuild.MayFinish(options.now).status(); },
      [&](auto& rebuild) { return rebuild.Finish(options.now); });
}

}  // namespace

void AddRebuild(const Command& program) {
  const auto o = std::make_shared<RebuildOptions>();
  const Option group{"group", &o->group, "the consumer group", Option::kRequired};
  const Option accept_differences{"--accept-differences", &o->accept_differences,
                                  "swap although the new tables differ from the live ones"};
  const Option ignore{"--ignore-column", &o->ignored_columns,
                      "schema.table.column: not compared; repeated for more"};
  const Option source{"--source", &o->source, "of --from backfill: the source's database"};
  const Option source_password{"--source-password-file", &o->source_password_file,
                               "a file that has its password"};
  const Option declarations{"--declaration", &o->declarations,
                            "of --from backfill: the backfill's file; repeated where several fill "
                            "the group's tables"};
  const Command rebuild =
      program.Add("rebuild",
                  "fill new tables beside the live ones, from the topic's history or from a "
                  "backfill of the source, compare, and swap them in",
                  o, Start);
  rebuild.With(
      {{"group", &o->group, "the consumer group"},
       {"--from", &o->from, "earliest | a time | backfill | checkpoint | snapshot:NAME"},
       declarations,
       source,
       source_password,
       {"--keep-old", &o->keep_old, "how long the old tables stay after the swap, for a rollback",
        Option::kShowsDefault},
       {"--accept-missing", &o->accept_missing,
        "although the history does not reach back as far as the live tables"},
       ignore,
       accept_differences});
  rebuild.Changes(Command::kReasonRequired);
  rebuild.Add("status", "how it stands, and how to go on", o, Status)
      .With({group, {"--schema", &o->schema, "the state schema, where no --config says it"}});
  rebuild.Add("resume", "go on with one that was interrupted", o, Resume)
      .With({group, accept_differences, ignore, declarations, source, source_password})
      .Changes(Command::kNoReason);
  rebuild.Add("abort", "undo one that has not swapped yet, its backfill too", o, Abort)
      .With({group,
             source,
             source_password,
             {"--keep-backfill", &o->keep_backfill, "let its backfill go on"}})
      .Changes(Command::kNoReason);
  rebuild.Add("rollback", "back to the old tables, which catch up; the new ones go", o, Rollback)
      .With({group})
      .Changes(Command::kReasonRequired);
  rebuild.Add("finish", "remove the old tables and their subscription for good", o, Finish)
      .With({group, {"--now", &o->now, "although --keep-old is not over"}})
      .Changes(Command::kNoReason);
}

}  // namespace lockstep::ctl
