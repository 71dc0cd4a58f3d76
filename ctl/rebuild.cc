#include "operations/rebuild.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "ctl/command.h"
#include "ctl/group_context.h"
#include "ctl/progress.h"
#include "offsets/seek_target.h"
#include "platform/daemon/signals.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "projections/write/group_projector.h"
#include "pubsub/transport.h"

namespace lockstep::ctl {
namespace {

using Json = nlohmann::ordered_json;
using state::RebuildRow;
using state::RebuildState;
using state::SeekTarget;

constexpr size_t kShown = 20;  // differences, per table

struct Options {
  std::string group, schema, from, reason, keep_old = "24h";
  bool accept_missing = false, accept_differences = false, now = false;
};

absl::StatusOr<SeekTarget> ParseFrom(const std::string& text, const std::string& project) {
  using Kind = SeekTarget::Kind;
  const auto from = offsets::ParseSeekTarget(text, project);
  if (from && from->kind != Kind::kNone && from->kind != Kind::kLatest) return *from;
  return InvalidArgument(
      "--from is '{}', not earliest, checkpoint, snapshot:NAME or a time such as "
      "2026-01-31T12:00:00Z",
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
  return fmt::format("`rebuild resume {}` goes on, `rebuild abort {}` undoes it", group, group);
}

Json ToJson(const std::string& group, const RebuildRow& row) {
  return {{"group", group},
          {"state", Name(row.state)},
          {"from", row.seek.ToString()},
          {"old_slot", row.old_slot},
          {"new_slot", row.new_slot},
          {"old_subscription", row.old_subscription},
          {"new_subscription", row.new_subscription},
          {"tables", row.tables},
          {"began_at", FormatTimestamp(row.began_at)},
          {"swapped_at", row.swapped_at ? Json(FormatTimestamp(*row.swapped_at)) : Json(nullptr)},
          {"keep_until",
           row.swapped_at ? Json(FormatTimestamp(*row.swapped_at + row.keep_old)) : Json(nullptr)},
          {"operator", row.operator_name},
          {"reason", row.reason}};
}

// What a rebuild command works with, for as long as it runs.
class Session {
 public:
  static absl::StatusOr<std::unique_ptr<Session>> Open(const Context& context,
                                                       const std::string& name) {
    auto session = std::unique_ptr<Session>(new Session(context));
    ASSIGN_OR_RETURN(session->runner_, OpenConfiguredRunner(context));
    ASSIGN_OR_RETURN(runner::ConfiguredGroup* const group, session->runner_.Group(name));
    ASSIGN_OR_RETURN(session->transport_,
                     pubsub::MakeTransport(session->runner_.options.pubsub.transport));
    const std::string schema = session->runner_.options.state_schema;
    const std::string file = group->declaration->file;
    ASSIGN_OR_RETURN(const std::string database, context.Database());
    operations::Rebuild::Parts parts{
        .database = database,
        .state_schema = schema,
        .instance = fmt::format("lockstepctl-{}", getpid()),
        .transport = *session->transport_,
        .options = group->options,
        .projector = [file, schema](const std::string& suffix)
            -> absl::StatusOr<std::unique_ptr<projections::Projector>> {
          ASSIGN_OR_RETURN(auto loaded,
                           projections::LoadGroup(
                               file, {.table_suffix = suffix, .state_schema = schema, .code = {}}));
          return std::move(loaded.projector);
        }};
    if (const auto* declared =
            dynamic_cast<const projections::GroupProjector*>(group->declaration->projector.get())) {
      for (const projections::Table& table : declared->plan().tables) {
        if (!table.updated_at.empty()) {
          parts.write_times[table.name.ToString()].insert(table.updated_at);
        }
      }
    }
    session->rebuild_ = std::make_unique<operations::Rebuild>(
        std::move(parts), *session->runner_.connection,
        operations::Rebuild::Listener{
            .progress = [s = session.get()](const auto& p) { s->printer_.Show(p.done, p.total); },
            .note = [s = session.get()](const std::string& text) { s->printer_.Say(text); }});
    return session;
  }

  operations::Rebuild& rebuild() { return *rebuild_; }
  const runner::RunnerOptions& options() const { return runner_.options; }

  // Until the slots are swapped; then or on differences the comparison is printed.
  absl::Status Drive(const Options& options, const std::stop_token& stop) {
    const absl::Status driven = rebuild_->Resume(options.accept_differences, stop);
    printer_.EndLine();
    Compare();
    RETURN_IF_ERROR(driven);
    ASSIGN_OR_RETURN(const auto row, rebuild_->Load());
    context_.Answer(row ? ToJson(options.group, *row) : Json(nullptr), [&] {
      fmt::print("{}\n", row ? "Swapped: the runners go on with the new tables; " +
                                   HowToGoOn(*row, options.group) + "."
                             : "Done: nothing is left of the rebuild.");
    });
    return absl::OkStatus();
  }

 private:
  explicit Session(const Context& context) : context_(context), printer_(context.json) {}

  void Compare() {
    const auto& swap = rebuild_->last_swap();
    if (!swap) return;
    for (const operations::TableComparison& table : swap->tables) {
      fmt::print(stderr, "{}: {} rows, {} in the new table, {}\n", table.table, table.old_rows,
                 table.new_rows, table.equal() ? "checksums equal" : "they differ");
      for (size_t i = 0; i < std::min(kShown, table.differences.size()); ++i) {
        fmt::print(stderr, "  {} {}\n", table.differences[i].key, table.differences[i].what);
      }
      if (table.more || table.differences.size() > kShown) {
        fmt::print(stderr, "  … {}{} more\n", table.more ? "over " : "",
                   table.differences.size() - std::min(kShown, table.differences.size()));
      }
    }
    if (swap->differs() && swap->ahead > 0) {
      fmt::print(stderr, "The new tables are {} events ahead, which explains as many rows.\n",
                 swap->ahead);
    }
  }

  const Context& context_;
  RunnerContext runner_;
  std::unique_ptr<pubsub::Transport> transport_;
  std::unique_ptr<operations::Rebuild> rebuild_;
  ProgressPrinter printer_;
};

void PrintPlan(const std::string& group, const operations::RebuildPlan& plan) {
  const RebuildRow& row = plan.row;
  fmt::print(stderr, "group         {}, slot {} -> {}\nfrom          {}\n", group, row.old_slot,
             row.new_slot, row.seek.ToString());
  if (plan.earliest) {
    fmt::print(stderr, "history       the topic reaches back to {}\n",
               FormatTimestamp(*plan.earliest));
  }
  if (plan.events > 0) fmt::print(stderr, "events        about {}\n", plan.events);
  fmt::print(stderr, "subscription  {} (new; the runners need roles/pubsub.subscriber on it)\n",
             row.new_subscription);
  for (const std::string& table : row.tables) {
    fmt::print(stderr, "table         {} beside {}\n", table + row.shadow_suffix(), table);
  }
  fmt::print(stderr, "old slot      kept {} after the swap\n", FormatDuration(row.keep_old));
}

absl::Status Start(const Context& context, const Options& options) {
  if (options.group.empty()) return InvalidArgument("name the consumer group");
  if (options.from.empty()) {
    return InvalidArgument(
        "say where to begin with --from: earliest, checkpoint, snapshot:NAME or a time");
  }
  if (options.reason.empty())
    return InvalidArgument("say why with --reason: it goes into the audit");
  Signals signals;  // before any thread is there
  ASSIGN_OR_RETURN(const auto session, Session::Open(context, options.group));
  operations::RebuildRequest request{.accept_missing = options.accept_missing,
                                     .operator_name = OperatorName(),
                                     .reason = options.reason};
  ASSIGN_OR_RETURN(request.from, ParseFrom(options.from, session->options().pubsub.project));
  ASSIGN_OR_RETURN(request.keep_old, ParseDuration(options.keep_old));
  ASSIGN_OR_RETURN(const auto plan, session->rebuild().Plan(request));
  PrintPlan(options.group, plan);
  if (!context.Confirm("This fills new tables beside the live ones and swaps them.")) {
    return absl::CancelledError("nothing was changed");
  }
  RETURN_IF_ERROR(session->rebuild().Begin(plan));
  return session->Drive(options, signals.stop_token());
}

absl::Status Resume(const Context& context, const Options& options) {
  Signals signals;
  ASSIGN_OR_RETURN(const auto session, Session::Open(context, options.group));
  return session->Drive(options, signals.stop_token());
}

absl::Status Status(const Context& context, const Options& options) {
  ASSIGN_OR_RETURN(const auto runner, OpenRunner(context, options.schema));
  const state::Rebuilds rebuilds(runner.schema(), ConsumerGroup(options.group));
  ASSIGN_OR_RETURN(const auto row, rebuilds.Load(*runner.connection));
  context.Answer(row ? ToJson(options.group, *row) : Json(nullptr), [&] {
    if (!row) {
      fmt::print("There is no rebuild of '{}'.\n", options.group);
      return;
    }
    fmt::print("group   {}, slot {} -> {}\nstate   {}, begun {} by {}: {}\nnext    {}\n",
               options.group, row->old_slot, row->new_slot, Name(row->state),
               FormatTimestamp(row->began_at), row->operator_name, row->reason,
               HowToGoOn(*row, options.group));
  });
  return absl::OkStatus();
}

// The commands that take one slot away.
absl::Status End(const Context& context, const Options& options, const std::string& question,
                 const std::string& done,
                 const std::function<absl::Status(operations::Rebuild&)>& may,
                 const std::function<absl::Status(operations::Rebuild&)>& end) {
  ASSIGN_OR_RETURN(const auto session, Session::Open(context, options.group));
  RETURN_IF_ERROR(may(session->rebuild()));
  if (!context.Confirm(question)) return absl::CancelledError("nothing was changed");
  RETURN_IF_ERROR(end(session->rebuild()));
  context.Answer({{"group", options.group}, {"done", done}}, [&] { fmt::print("{}\n", done); });
  return absl::OkStatus();
}

}  // namespace

void AddRebuild(const Command& program) {
  const auto options = std::make_shared<Options>();  // outlives this function with the callbacks
  const auto add_accept_differences = [&](const Command& command) {
    command.Flag("--accept-differences", options->accept_differences,
                 "swap although the new tables differ from the live ones");
  };
  const Command rebuild = program.Add(
      "rebuild",
      "fill new tables from the topic's history beside the live ones, compare, and swap them in",
      [options](const Context& c) { return Start(c, *options); });
  rebuild.Option("group", options->group, "the consumer group")
      .Option("--from", options->from, "earliest | a time (RFC 3339) | checkpoint | snapshot:NAME")
      .WithDefault("--keep-old", options->keep_old,
                   "how long the old tables stay after the swap, for a rollback")
      .Flag("--accept-missing", options->accept_missing,
            "although the history does not reach back as far as the live tables")
      .Option("--reason", options->reason, "why; goes into the audit");
  add_accept_differences(rebuild);
  const auto add = [&](const char* name, const char* help, const Run& run) {
    return rebuild.Add(name, help, run).Required("group", options->group, "the consumer group");
  };
  add("status", "how it stands, and how to go on", [options](const Context& c) {
    return Status(c, *options);
  }).Option("--schema", options->schema, "the state schema, where no --config says it");
  add_accept_differences(add("resume", "go on with one that was interrupted",
                             [options](const Context& c) { return Resume(c, *options); }));
  add("abort", "undo one that has not swapped yet", [options](const Context& c) {
    return End(
        c, *options, "This drops the new tables and their subscription.",
        "Undone: nothing is left of the rebuild.",
        [](operations::Rebuild& r) { return r.MayAbort(); },
        [](operations::Rebuild& r) { return r.Abort(); });
  });
  add("rollback", "back to the old tables, which catch up; the new ones go",
      [options](const Context& c) {
        if (options->reason.empty()) {
          return InvalidArgument("say why with --reason: it goes into the audit");
        }
        return End(
            c, *options, "This puts the old tables back in place and drops the new ones.",
            "Rolled back: the runners go on with the old tables and catch up.",
            [](operations::Rebuild& r) { return r.MayRollback(); },
            [&](operations::Rebuild& r) { return r.Rollback(OperatorName(), options->reason); });
      })
      .Option("--reason", options->reason, "why; goes into the audit");
  add("finish", "remove the old tables and their subscription for good",
      [options](const Context& c) {
        return End(
            c, *options, "This drops the old tables and their subscription.",
            "Finished: the old slot is gone.",
            [&](operations::Rebuild& r) { return r.MayFinish(options->now); },
            [&](operations::Rebuild& r) { return r.Finish(options->now); });
      })
      .Flag("--now", options->now, "although --keep-old is not over");
}

}  // namespace lockstep::ctl
