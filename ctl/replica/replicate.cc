// lockstepctl replicate: a group becomes a replica of rows that were there before, in one command.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ctl/command/print.h"
#include "ctl/replica/verify_context.h"
#include "ctl/source/backfill.h"
#include "operations/backfill_fit.h"
#include "operations/snapshot_arrival.h"
#include "platform/daemon/service_thread.h"
#include "platform/daemon/signals.h"
#include "platform/status.h"
#include "publisher/backfill/uuid5.h"
#include "state/groups/epochs.h"
#include "state/groups/overview.h"

namespace lockstep::ctl {
namespace {

using publisher::BackfillRecord;
using publisher::BackfillStore;

constexpr Millis kReplicateLook{500};

struct ReplicateOptions : VerifyFlags {
  ReplicateOptions() { wait = "10m"; }

  bool quick = false, no_verify = false;
};

// The steps, each of which finds what a run before this one has done.
class Replicating {
 public:
  Replicating(const Context& context, const ReplicateOptions& options, RunnerContext& runner,
              VerifyContext& verify, std::stop_token stop)
      : context_(context),
        options_(options),
        runner_(runner),
        verify_(verify),
        stop_(std::move(stop)) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(patience_, ParseDuration(options_.wait));
    RETURN_IF_ERROR(operations::CheckFits(verify_.declaration(),
                                          runner_.group->declaration->projector->plan(),
                                          runner_.group->options.baseline));
    RETURN_IF_ERROR(CheckSubscription(runner_.group->options.snapshots));
    ASSIGN_OR_RETURN(const state::GroupEpoch group, AwaitGroup());
    RETURN_IF_ERROR(CheckSubscription(group.subscription));
    ASSIGN_OR_RETURN(const BackfillRecord record, Backfill(group.token));
    RETURN_IF_ERROR(AwaitTaken(record));
    Json tables = Json::array();
    if (!options_.no_verify) {
      ASSIGN_OR_RETURN(auto passage, verify_.MakePassage());
      RETURN_IF_ERROR(passage.Await(stop_));
      ASSIGN_OR_RETURN(tables, verify_.RunAll(stop_, &tally_));
    }
    return context_.Answer({{"group", options_.group},
                            {"backfill", record.name},
                            {"id", record.id},
                            {"rows", record.rows_done},
                            {"compared", !options_.no_verify},
                            {"equal", options_.no_verify ? Json() : Json(tally_.equal())},
                            {"tables", tables}},
                           [&] { PrintEnd(record); });
  }

  const Tally& tally() const { return tally_; }

 private:
  // Its first runner makes the group, and does the Seek of its first start: before the backfill.
  absl::StatusOr<state::GroupEpoch> AwaitGroup() {
    const state::Epochs epochs(runner_.schema(), ConsumerGroup(options_.group));
    const SteadyTime deadline = Clock::System().Steady() + patience_;
    while (true) {
      auto group = epochs.Load(*runner_.connection);
      if (!absl::IsNotFound(group.status())) return group;
      RETURN_IF_ERROR(CheckSubscription(runner_.group->options.subscription));
      verify_.printer().Wait("waiting for the first runner of the group");
      if (SleepUnlessStopped(stop_, kReplicateLook)) return Interrupted();
      if (Clock::System().Steady() < deadline) continue;
      return FailedPrecondition("no runner of group {} has ever started: start one, then repeat",
                                options_.group);
    }
  }

  // What is published before it is there comes to nobody.
  absl::Status CheckSubscription(const std::string& name) {
    if (name.empty()) return absl::OkStatus();
    const auto found = runner_.transport->admin().GetSubscription(name);
    if (absl::IsNotFound(found.status())) {
      return NotFound(
          "subscription {} does not exist, so nothing would be kept of what changes meanwhile; "
          "make "
          "it first, for instance with `lockstepctl provision`",
          name);
    }
    // Who may not look it up has runners that may read it.
    return absl::IsPermissionDenied(found.status()) ? absl::OkStatus() : found.status();
  }

  // What was sent under another declaration says nothing of this one. Its pace may differ.
  absl::Status CheckSame(const BackfillRecord& record) const {
    publisher::Declaration declared = verify_.declaration();
    const auto before = publisher::Declaration::FromJson(record.declaration, record.descriptors);
    if (before.ok()) {
      declared.rows_per_second = before->rows_per_second;
      declared.chunk = before->chunk;
      // (The database keeps the fields in an order of its own.)
      const auto unordered = [](const publisher::Declaration& one) {
        return nlohmann::json::parse(one.ToJson().dump());
      };
      if (unordered(*before) == unordered(declared) &&
          before->descriptors == declared.descriptors) {
        return absl::OkStatus();
      }
    }
    if (!record.ended()) {
      return FailedPrecondition(
          "backfill {0} ({1}) was begun with another declaration: end it with `lockstepctl "
          "backfill "
          "cancel {1}` at the source, then repeat; or take the file that it was begun with",
          record.name, record.id);
    }
    return FailedPrecondition(
        "backfill {0} ({1}) has sent the rows as another declaration has them: give this one "
        "another "
        "name (`backfill:`) to have them sent as it says, which changes rows of a newer version "
        "alone, or fill new tables with `lockstepctl rebuild {2} --from backfill`",
        record.name, record.id, options_.group);
  }

  // The one that was made for this life of the group; a reset or a rebuild begins another.
  absl::StatusOr<BackfillRecord> Backfill(const std::string& token) {
    ASSIGN_OR_RETURN(
        const auto source,
        context_.At(options_.source, options_.source_password_file).Connect(kScanTimeout));
    BackfillStore store(*source);
    const std::string& name = verify_.declaration().name;
    std::string id;
    for (int n = 1; id.empty(); ++n) {
      const std::string wanted = publisher::Uuid5(token, fmt::format("{}\n{}", name, n));
      const auto found = store.Find(wanted);
      if (found.ok() && found->state == "cancelled") continue;
      if (found.ok()) RETURN_IF_ERROR(CheckSame(*found));
      if (found.ok() && !context_.json) {
        Print("backfill {} is {}, begun by {}: going on with it\n", name, wanted,
              found->created_by);
      }
      if (found.ok()) {
        id = wanted;
        continue;
      }
      if (!absl::IsNotFound(found.status())) return found.status();
      ASSIGN_OR_RETURN(
          id, StartBackfill(context_, *source, verify_.declaration(), options_.quick, wanted));
    }
    return AwaitBackfill(store, id, verify_.printer(), stop_);
  }

  // The runners have each row's snapshot, or a dead letter of it.
  absl::Status AwaitTaken(const BackfillRecord& record) {
    operations::SnapshotArrival arrival(runner_.schema(), ConsumerGroup(options_.group),
                                        runner_.group->options.inbox_retention);
    const state::Overview overview(runner_.schema());
    operations::SnapshotArrival::Look before;
    SteadyTime moved = Clock::System().Steady();
    while (true) {
      ASSIGN_OR_RETURN(const auto look, arrival.At(*runner_.connection, {record}));
      verify_.printer().Show(std::min(look.taken, look.sent), look.sent);
      if (look.all()) break;
      const SteadyTime now = Clock::System().Steady();
      if (look != std::exchange(before, look)) moved = now;
      ASSIGN_OR_RETURN(const auto runs, overview.Through(*runner_.connection, options_.group));
      const bool nobody = runs[0].IsNull("through");
      if (nobody) verify_.printer().Wait("no runner of the group is working; start one");
      if (SleepUnlessStopped(stop_, kReplicateLook)) return Interrupted();
      if (now - moved < patience_) continue;
      return FailedPrecondition(
          "{} rows were sent, and snapshots of {} have come to group {} in {}, without {} of the "
          "last that were sent: {}",
          look.sent, look.taken, options_.group, options_.wait, look.lacking,
          nobody ? "no runner of it is working, `lockstepctl lag` shows them"
                 : "is the backfill's topic one that the group subscribes to (`subscription`, "
                   "`snapshots`)?");
    }
    verify_.printer().EndLine();
    return absl::OkStatus();
  }

  absl::Status Interrupted() const {
    return absl::CancelledError("interrupted; the same command goes on with what stands");
  }

  void PrintEnd(const BackfillRecord& record) const {
    if (options_.no_verify) {
      Print("Group {} has taken the {} rows of backfill {}; they were not compared.\n",
            options_.group, record.rows_done, record.name);
    } else if (tally_.equal()) {
      Print("Group {} is a replica of {}.\n", options_.group, verify_.declaration().SourceName());
    } else if (tally_.differences > 0) {
      Print("`lockstepctl repair` has the rows that differ sent again.\n");
    }
  }

  const Context& context_;
  const ReplicateOptions& options_;
  RunnerContext& runner_;
  VerifyContext& verify_;
  const std::stop_token stop_;
  Millis patience_{0};
  Tally tally_;
};

absl::Status Replicate(const Context& context, const ReplicateOptions& options) {
  Signals signals;
  auto runner = OpenGroup(context, options.group);
  if (!runner.ok()) return Failed(runner.status());
  const auto verify = VerifyContext::Open(context, options, VerifyContext::kBoth);
  if (!verify.ok()) return Failed(verify.status());
  Replicating replicating(context, options, *runner, **verify, signals.stop_token());
  const absl::Status done = replicating.Run();
  return done.ok() ? Verdict(replicating.tally()) : Failed(done);
}

}  // namespace

void AddReplicate(const Command& program) {
  const auto o = std::make_shared<ReplicateOptions>();
  program
      .Add(
          "replicate",
          "make a group a replica of its source's rows: have them sent beside the tail, wait until "
          "the group has them, compare; repeated, it goes on with what stands",
          o, Replicate)
      .With({
          {"group", &o->group, "the consumer group, of the runner's --config", Option::kRequired},
          o->Declaration(),
          {"--quick", &o->quick, "before the start, ask the source's catalogue alone"},
          {"--no-verify", &o->no_verify, "don't compare"},
      })
      .With(o->Comparison())
      .Changes();
}

}  // namespace lockstep::ctl
