// lockstepctl verify: whether a read model holds what its source does.
#include <fmt/format.h>

#include <fstream>
#include <iostream>

#include "ctl/command/print.h"
#include "ctl/replica/verify_context.h"
#include "platform/daemon/signals.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "verify/exchange.h"

namespace lockstep::ctl {
namespace {

struct VerifyOptionsOfCtl : VerifyFlags {
  std::string file, ranges;
};
using Flags = VerifyOptionsOfCtl;

absl::Status Compare(const Context& context, const Flags& flags, const std::stop_token& stop,
                     Tally* tally) {
  if (flags.declaration.empty() || flags.source.empty()) {
    return InvalidArgument(
        "say what to compare: --declaration, the backfill's file, and --source, its database");
  }
  ASSIGN_OR_RETURN(const auto verify, VerifyContext::Open(context, flags, VerifyContext::kBoth));
  ASSIGN_OR_RETURN(const Json tables, verify->RunAll(stop, tally));
  return context.Answer({{"backfill", verify->declaration().name},
                         {"group", verify->group()},
                         {"equal", tally->equal()},
                         {"tables", tables}},
                        [] {});
}

absl::Status VerifyAll(const Context& context, const Flags& flags) {
  Signals signals;
  Tally tally;
  const absl::Status done = Compare(context, flags, signals.stop_token(), &tally);
  return done.ok() ? Verdict(tally) : Failed(done);
}

absl::Status ExportTo(const Context& context, const Flags& flags, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const auto verify, VerifyContext::Open(context, flags, VerifyContext::kSource));
  if (verify->tables().size() > 1) {
    return InvalidArgument("several projections take these rows: name one with --projection");
  }
  const verify::VerifyTable& table = verify->tables().front();
  ASSIGN_OR_RETURN(const auto types, verify::ReadKeyTypes(verify->source(), table.source));
  verify::VerifySide side(verify->source(), table.source, types);
  const auto line = [](const std::string& text) { std::cout << text << '\n'; };
  verify::PassageOptions waiting;
  ASSIGN_OR_RETURN(waiting.timeout, ParseDuration(flags.wait));
  waiting.waiting = [&](const std::string& what) { verify->printer().Wait(what); };
  verify::ExchangeHeader header{.backfill = verify->declaration().name,
                                .projection = table.projection,
                                .types = types,
                                .newest = [&] {
                                  auto newest = verify::AwaitPublished(
                                      verify->source(), verify->declaration(), waiting,
                                      Clock::System().Steady() + waiting.timeout, stop);
                                  verify->printer().EndLine();
                                  return newest;
                                }};
  std::vector<verify::AskedRange> finer;
  if (!flags.ranges.empty()) {
    std::ifstream from(flags.ranges);
    if (!from) return NotFound("{} can't be read", flags.ranges);
    ASSIGN_OR_RETURN(finer, verify::ReadRanges(from, table.keys.size()));
  }
  RETURN_IF_ERROR(flags.ranges.empty() ? verify::ExportRanges(side, header, line)
                                       : verify::ExportKeys(side, header, finer, line));
  std::cout.flush();
  return std::cout ? absl::OkStatus() : Unavailable("the file could not be written in full");
}

absl::Status Export(const Context& context, const Flags& flags) {
  Signals signals;
  const absl::Status done = ExportTo(context, flags, signals.stop_token());
  return done.ok() ? done : Failed(done);
}

absl::Status CompareWithFile(const Context& context, const Flags& flags,
                             const std::stop_token& stop, Tally* tally) {
  std::ifstream from(flags.file);
  if (!from) return NotFound("{} can't be read", flags.file);
  ASSIGN_OR_RETURN(const auto verify, VerifyContext::Open(context, flags, VerifyContext::kReplica));
  verify::FileComparison compared;
  for (const verify::VerifyTable& table : verify->tables()) {
    if (verify->tables().size() > 1 && flags.projection.empty()) {
      return InvalidArgument("several projections take these rows: name one with --projection");
    }
    ASSIGN_OR_RETURN(compared, verify::CompareWithFile(
                                   from, table, verify->declaration().name, verify->replica(),
                                   [&](const verify::FileSource& source,
                                       const std::stop_token& token) -> absl::Status {
                                     ASSIGN_OR_RETURN(auto passage, verify->MakePassage(source));
                                     return passage.Await(token);
                                   },
                                   stop));
    verify->printer().EndLine();
    const size_t open = compared.ranges.size();
    tally->Add(compared.result, open);
    const bool equal = tally->equal();
    if (!flags.ranges.empty()) {
      std::ofstream to(flags.ranges);
      for (const std::string& line : verify::RangeLines(compared.ranges)) to << line << '\n';
      to.close();
      if (!to) return Unavailable("{} can't be written", flags.ranges);
    }
    Json json = ResultJson(table, compared.result);
    json["equal"] = equal;
    json["open_ranges"] = open;
    RETURN_IF_ERROR(context.Answer(
        {{"backfill", verify->declaration().name},
         {"group", verify->group()},
         {"equal", equal},
         {"tables", Json::array({json})}},
        [&] {
          PrintResult(table, compared.result, flags.shown, open);
          if (open == 0) return;
          Print("  {}\n",
                flags.ranges.empty()
                    ? "--ranges FILE writes them, for `verify export --ranges FILE` at the source"
                    : "`verify export --ranges` with this file at the source lists their keys");
        }));
  }
  return absl::OkStatus();
}

absl::Status CompareFile(const Context& context, const Flags& flags) {
  Signals signals;
  Tally tally;
  const absl::Status done = CompareWithFile(context, flags, signals.stop_token(), &tally);
  return done.ok() ? Verdict(tally) : Failed(done);
}

}  // namespace

void AddVerify(const Command& program) {
  const auto o = std::make_shared<Flags>();
  std::vector<Option> all = o->All();
  for (Option& option : all) {
    if (option.need == Option::kRequired) option.need = Option::kOptional;  // of `export` too
  }
  const Command verify = program.Add(
      "verify",
      "compare a read model with its source by key range; ends with 1 when rows differ, with 2 "
      "when that can't be told",
      o, VerifyAll);
  verify.With(all);
  verify
      .Add("export", "write ranges of the source (--database), with count and hash, to stdout", o,
           Export)
      .With(o->Files())
      .With({{"--ranges", &o->ranges, "the keys of these ranges, which `verify compare` wrote"},
             {"--wait", &o->wait, "how long to wait until the outbox is published",
              Option::kShowsDefault}});
  verify
      .Add("compare", "compare a read model (--database or --config) with an exported file", o,
           CompareFile)
      .With(o->Files())
      .With(
          {{"file", &o->file, "what `verify export` wrote", Option::kRequired},
           {"--ranges", &o->ranges, "where to write the ranges that differ"},
           {"--wait", &o->wait, "how long to wait for the group", Option::kShowsDefault},
           {"--grace", &o->grace, "how long nothing older must be in hand", Option::kShowsDefault},
           {"--limit", &o->shown, "differences to show", Option::kShowsDefault}});
}

}  // namespace lockstep::ctl
