#include "ctl/replica/verify_context.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "ctl/command/print.h"
#include "platform/config/database_address.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "verify/deep.h"
#include "verify/passage.h"
#include "verify/session.h"
#include "verify/tombstones.h"

namespace lockstep::ctl {
namespace {

using verify::Difference;
using verify::VerifyResult;
using verify::VerifyTable;

std::string VersionText(const std::optional<int64_t>& version) {
  return version ? std::to_string(*version) : "none";
}

std::map<std::string, int64_t> CountKinds(const VerifyResult& result) {
  std::map<std::string, int64_t> counts;
  for (const Difference& one : result.differences) ++counts[std::string(Name(one.kind))];
  return counts;
}

}  // namespace

Option VerifyFlags::Declaration() {
  return {"--declaration", &declaration, "the backfill's file: what the source is",
          Option::kRequired};
}

std::vector<Option> VerifyFlags::Files() {
  return {Declaration(),
          {"--group", &group, "the consumer group, of the runner's --config"},
          {"--group-file", &group_file, "the group's file, in place of --config and --group"},
          {"--projection", &projection,
           "this one alone; else all that map the backfill's event by replace"},
          {"--schema", &schema, "the service's state schema, where no --config says it"}};
}

std::vector<Option> VerifyFlags::Comparison() {
  return {{"--source", &source, "the source's database (the replica's is --database or --config)",
           Option::kRequired},
          {"--source-password-file", &source_password_file, "a file that has its password"},
          {"--deep", &deep, "map every row through the projection and compare its columns too"},
          {"--wait", &wait, "how long to wait for the group before the second look",
           Option::kShowsDefault},
          {"--grace", &grace,
           "how long nothing older must be in hand; where runners are being killed, more than the "
           "subscription's ack deadline",
           Option::kShowsDefault},
          {"--limit", &shown, "differences to show; --json has them all", Option::kShowsDefault}};
}

std::vector<Option> VerifyFlags::All() {
  std::vector<Option> options = Files();
  const std::vector<Option> more = Comparison();
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

absl::StatusOr<std::unique_ptr<VerifyContext>> VerifyContext::Open(const Context& context,
                                                                   const VerifyFlags& flags,
                                                                   Sides sides) {
  auto opened = std::unique_ptr<VerifyContext>(new VerifyContext(context, flags));
  ASSIGN_OR_RETURN(opened->declaration_, publisher::LoadDeclaration(flags.declaration));
  RETURN_IF_ERROR(opened->LoadGroup(context));
  ASSIGN_OR_RETURN(opened->tables_,
                   verify::PlanVerify(opened->declaration_, opened->group_->projector->plan(),
                                      flags.projection));
  if (sides != kSource) RETURN_IF_ERROR(opened->OpenReplica(context));
  if (sides != kReplica) {
    RETURN_IF_ERROR(opened->OpenSource(
        sides == kSource ? context : context.At(flags.source, flags.source_password_file)));
  }
  return opened;
}

absl::StatusOr<std::unique_ptr<postgres::Connection>> VerifyContext::ConnectToWrite() const {
  return context_.At(flags_.source, flags_.source_password_file).Connect();
}

absl::Status VerifyContext::OpenSource(const Context& context) {
  ASSIGN_OR_RETURN(source_, context.Connect(Millis(0)));
  RETURN_IF_ERROR(verify::MakeReadOnly(*source_));
  return verify::RefuseStandby(*source_);
}

absl::Status VerifyContext::LoadGroup(const Context& context) {
  if (!flags_.group_file.empty()) {
    const std::string schema = flags_.schema.empty() ? "lockstep_state" : flags_.schema;
    ASSIGN_OR_RETURN(auto loaded,
                     projections::LoadGroup(flags_.group_file, {.state_schema = schema}));
    group_ = std::make_shared<projections::GroupDeclaration>(std::move(loaded));
    return absl::OkStatus();
  }
  if (context.config.empty() || flags_.group.empty()) {
    return InvalidArgument(
        "name the group's file with --group-file, or the runner's configuration with --config and "
        "the group with --group");
  }
  ASSIGN_OR_RETURN(const auto options, ReadRunner(context));
  for (const runner::ConfiguredGroup& group : options.groups) {
    if (group.options.name == flags_.group) group_ = group.declaration;
  }
  if (group_ == nullptr) return NotFound("the configuration has no group '{}'", flags_.group);
  return absl::OkStatus();
}

absl::Status VerifyContext::OpenReplica(const Context& context) {
  ASSIGN_OR_RETURN(runner_, OpenRunner(context, flags_.schema));
  // What large tables need is not cut short.
  ASSIGN_OR_RETURN(runner_.connection, context.Connect(Millis(0)));
  return verify::MakeReadOnly(*runner_.connection);
}

absl::StatusOr<verify::Passage> VerifyContext::MakePassage(
    const std::optional<verify::FileSource>& file) {
  verify::PassageOptions options;
  ASSIGN_OR_RETURN(options.timeout, ParseDuration(flags_.wait));
  ASSIGN_OR_RETURN(options.grace, ParseDuration(flags_.grace));
  options.waiting = [this](const std::string& what) { printer_.Wait(what); };
  verify::Passage::Source source{.connection = source_.get()};
  if (file) {
    source.newest = file->newest;
    source.silent = !file->newest.has_value();
  }
  return verify::Passage(std::move(source), declaration_, replica(), runner_.schema(), group(),
                         std::move(options));
}

absl::StatusOr<VerifyResult> VerifyContext::Run(const VerifyTable& table,
                                                const std::vector<verify::RowKey>* keys,
                                                const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const auto types, verify::ReadKeyTypes(replica(), table.replica));
  verify::VerifySide source(*source_, table.source, types);
  verify::VerifySide replica_side(replica(), table.replica, types);
  verify::Verify::Parts parts{
      .source = source,
      .replica = replica_side,
      .passed = [&](const std::stop_token& token) -> absl::Status {
        ASSIGN_OR_RETURN(auto passage, MakePassage());
        return passage.Await(token);
      },
      .progress = [&](int64_t done, int64_t total) { printer_.Show(done, total); },
      .deleted =
          [&](const std::vector<verify::RowKey>& some) {
            return verify::FindDeleted(replica_side, table, runner_.schema(), group(), some);
          }};
  std::unique_ptr<verify::DeepCompare> deep;
  if (flags_.deep) {
    ASSIGN_OR_RETURN(deep, verify::DeepCompare::Make(declaration_, *group_->projector, table,
                                                     source, replica_side));
    parts.deep = [&](const verify::KeyRange& range, std::vector<Difference>* found) {
      return deep->InRange(range, found);
    };
    parts.deep_keys = [&](const std::vector<verify::RowKey>& some, std::vector<Difference>* found) {
      return deep->OfKeys(some, found);
    };
  }
  verify::Verify verify(std::move(parts), {});
  auto result = keys != nullptr ? verify.RunKeys(*keys, stop) : verify.Run(stop);
  printer_.EndLine();
  return result;
}

absl::StatusOr<Json> VerifyContext::RunAll(const std::stop_token& stop, Tally* tally) {
  Json tables = Json::array();
  for (const VerifyTable& table : tables_) {
    ASSIGN_OR_RETURN(const VerifyResult result, Run(table, nullptr, stop));
    tally->Add(result);
    tables.push_back(ResultJson(table, result));
    if (!context_.json) PrintResult(table, result, flags_.shown);
  }
  return tables;
}

Json ResultJson(const VerifyTable& table, const VerifyResult& result) {
  Json json = {{"projection", table.projection},
               {"table", table.name},
               {"equal", result.equal()},
               {"source_rows", result.source_rows},
               {"replica_rows", result.replica_rows},
               {"ranges", result.ranges},
               {"differing_ranges", result.differing},
               {"first_look", result.first_look},
               {"moving", result.moving},
               {"confirmed", result.unconfirmed.empty()},
               {"unconfirmed", result.unconfirmed},
               {"counts", CountKinds(result)}};
  json["differences"] = ListOf(result.differences, [](const Difference& one) {
    Json row = {{"class", Name(one.kind)},
                {"key", one.key},
                {"source_version", OrNull(one.source_version)},
                {"replica_version", OrNull(one.replica_version)}};
    if (!one.columns.empty()) row["columns"] = one.columns;
    if (!one.unmapped.empty()) row["unmapped"] = one.unmapped;
    return row;
  });
  json["more"] = result.more;
  return json;
}

void PrintResult(const VerifyTable& table, const VerifyResult& result, int shown,
                 size_t open_ranges) {
  const std::string verdict =
      result.equal() && open_ranges == 0      ? "equal"
      : !result.differs() && open_ranges == 0 ? fmt::format("{} not decided", result.moving)
      : open_ranges == 0
          ? fmt::format("{} differ", Differences(result))
          : fmt::format("{} differ, {} ranges are open", Differences(result), open_ranges);
  Print("{} ({}): {} rows at the source, {} here, {}\n", table.name, table.projection,
        result.source_rows, result.replica_rows, verdict);
  for (const auto& [kind, count] : CountKinds(result)) Print("  {:<8} {}\n", kind, count);
  if (result.moving > 0) {
    Print("  {} rows changed from look to look and could not be told\n", result.moving);
  }
  const size_t some = std::min(static_cast<size_t>(std::max(shown, 0)), result.differences.size());
  for (size_t i = 0; i < some; ++i) {
    const Difference& one = result.differences[i];
    Print("  {:<8} {}  source {}, here {}{}{}{}\n", Name(one.kind), fmt::join(one.key, ", "),
          VersionText(one.source_version), VersionText(one.replica_version),
          one.columns.empty() && one.unmapped.empty() ? "" : ": ", fmt::join(one.columns, ", "),
          one.unmapped);
  }
  if (some < result.differences.size()) {
    Print("  … {} more; --limit shows more of them, --json all\n",
          result.differences.size() - some);
  }
  if (result.more > 0) {
    Print("  … and at least {} that were only counted: repair these, then look again\n",
          result.more);
  }
  if (!result.unconfirmed.empty() && result.differs()) {
    Print("  These were seen once only, and may be changes under way: {}\n", result.unconfirmed);
  }
}

int64_t Differences(const VerifyResult& result) {
  return static_cast<int64_t>(result.differences.size()) + result.more;
}

void Tally::Add(const VerifyResult& result, size_t open) {
  undecided += result.moving;
  if (result.equal() && open == 0) return;
  if (!result.unconfirmed.empty()) {
    unconfirmed = result.unconfirmed;
    return;
  }
  differences += Differences(result);
  open_ranges += open;
}

absl::Status Verdict(const Tally& tally) {
  if (tally.equal()) return absl::OkStatus();
  if (tally.open_ranges > 0) {
    return WithExit(1, FailedPrecondition("{} rows differ, {} ranges are open", tally.differences,
                                          tally.open_ranges));
  }
  if (tally.differences > 0) {
    return WithExit(1, FailedPrecondition("{} rows differ", tally.differences));
  }
  if (!tally.unconfirmed.empty()) {
    return WithExit(2,
                    FailedPrecondition("whether rows differ can't be told: {}", tally.unconfirmed));
  }
  return WithExit(
      2, FailedPrecondition("not decided: {} rows changed from look to look, all others are equal; "
                            "compare again, when they change less",
                            tally.undecided));
}

}  // namespace lockstep::ctl
