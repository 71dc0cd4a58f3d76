// lockstepctl repair: what `verify` found is sent again, by the source's publisher.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "ctl/command/operator.h"
#include "ctl/command/print.h"
#include "ctl/replica/verify_context.h"
#include "ctl/source/backfill.h"
#include "platform/daemon/signals.h"
#include "platform/status.h"
#include "publisher/backfill/backfill_store.h"
#include "verify/repair_arrival.h"
#include "verify/repair_plan.h"

namespace lockstep::ctl {
namespace {

using verify::Difference;
using verify::RepairPlan;
using verify::VerifyTable;

struct RepairOptions : VerifyFlags {
  std::string from;
  bool delete_ghosts = false, whole_table = false, no_wait = false;
};

// What `verify --json` found in a table: where to look again.
struct FoundInFile {
  std::vector<verify::RowKey> keys;
  bool content = false;   // some differ in their values alone
  bool complete = false;  // the file has all differences
};

absl::StatusOr<FoundInFile> ReadFound(const Json& document, const VerifyContext& verify,
                                      const VerifyTable& table) {
  FoundInFile found;
  try {
    const std::string backfill = document.at("backfill"), group = document.at("group");
    if (backfill != verify.declaration().name || group != verify.group()) {
      return InvalidArgument(
          "--from: the file is of backfill {} and group {}, not of backfill {} and group {}",
          backfill, group, verify.declaration().name, verify.group());
    }
    for (const Json& one : document.at("tables")) {
      if (one.at("projection") != table.projection) continue;
      if (!one.at("confirmed").get<bool>()) {
        return FailedPrecondition("--from: nothing is repaired before a second look: {}",
                                  TextOf(one.at("unconfirmed")));
      }
      if (const auto more = one.at("more").get<int64_t>(); more > 0) {
        return FailedPrecondition(
            "--from: the file leaves out {} differences of {} that were only counted; let `repair` "
            "compare by itself",
            more, table.name);
      }
      found.complete = one.at("moving") == 0 && one.value("open_ranges", 0) == 0;
      for (const Json& row : one.at("differences")) {
        auto key = row.at("key").get<verify::RowKey>();
        const std::string kind = row.at("class").get<std::string>();
        const auto named = std::ranges::find(
            verify::kDifferenceKinds, kind, &std::pair<std::string, verify::DifferenceKind>::first);
        if (named == verify::kDifferenceKinds.end() || key.size() != table.keys.size()) {
          return InvalidArgument("--from: no difference of {}: {}", table.name, row.dump());
        }
        found.content |= named->second == verify::DifferenceKind::kContent;
        found.keys.push_back(std::move(key));
      }
    }
  } catch (const std::exception& error) {
    return InvalidArgument("--from: the file is none that `verify --json` wrote: {}", error.what());
  }
  return found;
}

class Repairing {
 public:
  Repairing(const Context& context, const RepairOptions& options, VerifyContext& verify,
            std::stop_token stop)
      : context_(context), options_(options), verify_(verify), stop_(std::move(stop)) {}

  absl::Status Run() {
    Json document;
    if (!options_.from.empty()) {
      std::ifstream file(options_.from);
      document = Json::parse(file, nullptr, /*allow_exceptions=*/false);
      if (document.is_discarded()) return InvalidArgument("--from: {} is no JSON", options_.from);
    }
    Json tables = Json::array();
    for (const VerifyTable& table : verify_.tables()) {
      ASSIGN_OR_RETURN(Json done, RepairTable(table, document));
      tables.push_back(std::move(done));
    }
    return context_.Answer({{"backfill", verify_.declaration().name}, {"tables", tables}}, [] {});
  }

  const Tally& left() const { return left_; }

 private:
  absl::StatusOr<Json> RepairTable(const VerifyTable& table, const Json& document) {
    ASSIGN_OR_RETURN(const auto types, verify::ReadKeyTypes(verify_.replica(), table.replica));
    verify::VerifySide source(verify_.source(), table.source, types);
    verify::VerifySide replica(verify_.replica(), table.replica, types);
    verify::GhostOptions ghosts{.remove = options_.delete_ghosts,
                                .whole_table = options_.whole_table};
    verify::VerifyResult result;
    if (document.is_null()) {
      ASSIGN_OR_RETURN(result, verify_.Run(table, nullptr, stop_));
    } else {
      ASSIGN_OR_RETURN(const FoundInFile found, ReadFound(document, verify_, table));
      if (found.content && !options_.deep) {
        return InvalidArgument(
            "--from: the file has rows whose values alone differ: give --deep, so that they can be "
            "looked at again");
      }
      ASSIGN_OR_RETURN(const auto keys, replica.Spelt(found.keys));
      ASSIGN_OR_RETURN(result, verify_.Run(table, &keys, stop_));
      ghosts.complete = found.complete;
    }
    if (!context_.json && document.is_null()) PrintResult(table, result, options_.shown);
    if (!result.unconfirmed.empty()) {
      return FailedPrecondition("nothing is repaired before a second look: {}", result.unconfirmed);
    }
    if (result.more > 0 || result.moving > 0) ghosts.complete = false;
    left_.differences += result.more;
    const std::vector<Difference>& differences = result.differences;
    ASSIGN_OR_RETURN(const RepairPlan plan, verify::PlanRepair(verify_.declaration(), table, source,
                                                               replica, differences, ghosts));
    left_.differences +=
        plan.ahead + plan.unmapped + plan.ghosts_left + static_cast<int64_t>(plan.kept.size());
    Json json = {{"projection", table.projection},
                 {"table", table.name},
                 {"rows", plan.keys.size()},
                 {"ghosts", plan.ghosts.size()},
                 {"ghosts_left", plan.ghosts_left},
                 {"ghosts_kept", ListOf(plan.kept,
                                        [](const RepairPlan::Kept& one) {
                                          return Json{{"key", one.key}, {"why", one.why}};
                                        })},
                 {"ahead", plan.ahead},
                 {"gone", plan.gone},
                 {"unmapped", plan.unmapped},
                 {"repair", nullptr}};
    PrintPlan(table, plan);
    if (plan.empty()) return json;
    if (context_.dry_run) {  // all tables are told, and what they come to
      left_.differences += static_cast<int64_t>(plan.keys.size() + plan.ghosts.size());
      if (!context_.json)
        Print("Nothing was changed: this was a dry run; --yes in its place does it.\n");
      return json;
    }
    RETURN_IF_ERROR(Execute(table, plan, differences, json));
    return json;
  }

  absl::Status Execute(const VerifyTable& table, const RepairPlan& plan,
                       const std::vector<Difference>& differences, Json& json) {
    RETURN_IF_ERROR(context_.Confirm(
        fmt::format("This sends {} rows of {} again{}, to topic {}, for every consumer of it.",
                    plan.keys.size(), verify_.declaration().SourceName(),
                    plan.ghosts.empty()
                        ? ""
                        : fmt::format(" and has {} rows deleted at consumers", plan.ghosts.size()),
                    verify_.declaration().topic)));
    ASSIGN_OR_RETURN(auto arrival,
                     verify::RepairArrival::Expect(verify_.declaration(), verify_.source(), plan));
    ASSIGN_OR_RETURN(const auto writing, verify_.ConnectToWrite());
    publisher::BackfillStore store(*writing);
    ASSIGN_OR_RETURN(const std::string id,
                     store.CreateRepair(verify_.declaration(), plan.keys, plan.ghosts,
                                        OperatorAtHost(), context_.reason));
    json["repair"] = id;
    if (options_.no_wait) {
      if (!context_.json) Print("Repair {} was begun; `verify` tells when it is done.\n", id);
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(AwaitBackfill(store, id, verify_.printer(), stop_).status());
    ASSIGN_OR_RETURN(auto passage, verify_.MakePassage());
    RETURN_IF_ERROR(arrival.Await(id, passage, stop_));
    std::set<verify::RowKey> kept;
    for (const RepairPlan::Kept& one : plan.kept) kept.insert(one.key);
    std::vector<verify::RowKey> keys;
    for (const Difference& one : differences) {
      if (one.kind == verify::DifferenceKind::kAhead || kept.contains(one.key)) continue;
      if (!one.unmapped.empty()) continue;
      if (one.kind == verify::DifferenceKind::kGhost && !options_.delete_ghosts) continue;
      keys.push_back(one.key);
    }
    ASSIGN_OR_RETURN(const auto result, verify_.Run(table, &keys, stop_));
    left_.Add(result);
    json["left"] = ResultJson(table, result)["differences"];
    if (!context_.json) {
      Print("Repaired: {} of {} rows are equal now.\n", keys.size() - result.differences.size(),
            keys.size());
      for (const Difference& one : result.differences) {
        Print("  {:<8} {}\n", Name(one.kind), fmt::join(one.key, ", "));
      }
    }
    return absl::OkStatus();
  }

  void PrintPlan(const VerifyTable& table, const RepairPlan& plan) const {
    if (context_.json) return;
    Print("{}: {} rows to send again, {} ghosts to delete\n", table.name, plan.keys.size(),
          plan.ghosts.size());
    if (plan.ghosts_left > 0) {
      Print("  {} ghosts stay: --delete-ghosts deletes them\n", plan.ghosts_left);
    }
    std::map<std::string, int64_t> reasons;
    for (const RepairPlan::Kept& one : plan.kept) ++reasons[one.why];
    for (const auto& [why, count] : reasons) Print("  {} ghosts stay: {}\n", count, why);
    const size_t some =
        std::min(static_cast<size_t>(std::max(options_.shown, 0)), plan.kept.size());
    for (size_t i = 0; i < some; ++i) Print("    {}\n", fmt::join(plan.kept[i].key, ", "));
    if (plan.ahead > 0) {
      Print(
          "  {} rows are ahead of their source and stay: it was restored, or changes rows without "
          "raising their version; a rebuild takes its state over\n",
          plan.ahead);
    }
    if (plan.unmapped > 0) {
      Print(
          "  {} rows can't go through the projection and are not sent: `verify --deep` says why\n",
          plan.unmapped);
    }
    if (plan.gone > 0) Print("  {} rows are gone from the source meanwhile\n", plan.gone);
  }

  const Context& context_;
  const RepairOptions& options_;
  VerifyContext& verify_;
  const std::stop_token stop_;
  Tally left_;  // what stays
};

absl::Status Repair(const Context& context, const RepairOptions& options) {
  Signals signals;
  const auto verify = VerifyContext::Open(context, options, VerifyContext::kBoth);
  if (!verify.ok()) return Failed(verify.status());
  Repairing repairing(context, options, **verify, signals.stop_token());
  const absl::Status done = repairing.Run();
  return done.ok() ? Verdict(repairing.left()) : Failed(done);
}

}  // namespace

void AddRepair(const Command& program) {
  const auto o = std::make_shared<RepairOptions>();
  program
      .Add("repair",
           "compare as `verify` does, and have the source's publisher send the rows that differ "
           "again",
           o, Repair)
      .With(o->All())
      .With({
          {"--from", &o->from,
           "look again at what `verify --json` wrote and repair that, without comparing all"},
          {"--delete-ghosts", &o->delete_ghosts,
           "also delete rows that the source does not have, at every consumer"},
          {"--whole-table", &o->whole_table,
           "with --delete-ghosts: every row of the table is of this source, and a query has all "
           "of them; without, only rows whose `aggregate` column says so are deleted, and none "
           "where the source is a query"},
          {"--no-wait", &o->no_wait, "don't wait until it is done and compare again"},
      })
      .Changes(Command::kReasonRequired);
}

}  // namespace lockstep::ctl
