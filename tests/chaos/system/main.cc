// Publishers, runners, Postgres and Pub/Sub as real processes, a source that keeps its own ledger,
// and a seeded schedule of what goes wrong. In the end everything must be as the ledger says. Run
// by scripts/chaos; docs/reliability-lab.md says what it tries and what it found.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <csignal>
#include <exception>

#include "platform/log/log.h"
#include "tests/chaos/system/adoption.h"
#include "tests/chaos/system/ledger.h"
#include "tests/chaos/system/schedule.h"
#include "tests/chaos/system/source.h"
#include "tests/chaos/system/storm.h"
#include "tests/chaos/system/verdict.h"
#include "tests/chaos/system/world.h"

namespace lockstep::chaos {
namespace {

struct Options {
  WorldOptions world;
  double minutes = 1;
  int rate = 120;
  int patience = 60;  // seconds without progress
  bool plan = false;
};

void PrintPlan(const std::vector<Planned>& schedule) {
  for (const Planned& planned : schedule) {
    fmt::print("{:>8.3f} s  {:<41} pick {:>4}  {} ms\n",
               static_cast<double>(planned.at.count()) / 1000, Name(planned.fault),
               planned.pick % 1000, planned.lasts.count());
  }
}

void Report(World& world, const Source& source, const Ledger& ledger, const Storm& storm,
            const Adoption& adoption, const Inspector& inspector, size_t planned) {
  fmt::print(
      "chaos: {} events committed ({} poison), {} transactions rolled back, {} failed, {} in "
      "doubt\n",
      ledger.size(), ledger.poison(/*called=*/true), source.rolled_back(), source.failed(),
      source.in_doubt());
  fmt::print("chaos: {} faults:", planned);
  for (const auto& [fault, count] : storm.injected()) fmt::print(" {} {};", count, Name(fault));
  fmt::print(
      "\nchaos: Postgres started {} times, {} times out of space, failed over {} times; {} tables "
      "locked to the end; offset resets done {}, refused {}\n",
      world.source_server().starts() + world.feed_servers().starts(),
      world.source_server().out_of_space() + world.feed_servers().out_of_space(),
      world.feed_servers().failovers(), storm.locks_held(), storm.resets_done(),
      storm.resets_refused());
  fmt::print(
      "chaos: {} backfills done, {} times paused, {} times failed and resumed; verify: {} times "
      "equal, {} times it could not be told, {} finds after a failover; runners compared {} "
      "times\n",
      adoption.done().size(), adoption.paused(), adoption.failed(), inspector.equal(),
      inspector.untold(), inspector.excused(), inspector.by_runners());
}

int Run(const Options& options) {
  const Millis length(std::llround(options.minutes * 60'000));
  const auto schedule = MakeSchedule(options.world.seed, length);
  if (options.plan) {
    PrintPlan(schedule);
    return 0;
  }
  fmt::print("chaos: seed {}, {} minutes\n", options.world.seed, options.minutes);
  std::fflush(stdout);
  Ledger ledger(options.world.folder + "/ledger.tsv");
  World world(options.world);
  const auto before = world.Inventory();
  Source source({.database = world.source_url(),
                 .outbox = World::kOutbox,
                 .topic = World::kTopic,
                 .seed = options.world.seed,
                 .rate = options.rate},
                ledger);
  world.publishers().Start(2);
  world.runners().Start(2);
  source.Start();
  Adoption adoption(world);
  Inspector inspector(world);
  Storm storm(world, source, ledger, adoption, inspector);
  storm.Run(schedule, length);
  source.RequestStop();
  while (!source.ended()) {
    world.Tick();
    ::usleep(20'000);
  }
  inspector.Finish();
  adoption.Finish(Millis(options.patience * 2000));
  Report(world, source, ledger, storm, adoption, inspector, schedule.size());
  std::fflush(stdout);

  Verdict verdict(world, ledger);
  verdict.WaitUntilDone(Millis(options.patience * 1000));
  verdict.CheckData(adoption, inspector);
  // A calm is as long as one comparison, and begins with what the storm has left.
  if (length >= std::chrono::minutes(6)) verdict.CheckCompared(inspector);
  verdict.CheckSpoilt();
  world.publishers().Finish();
  world.runners().Finish();
  std::vector<Blow> blows = storm.blows();
  blows.insert(blows.end(), world.runners().blows().begin(), world.runners().blows().end());
  verdict.CheckCalls(blows);
  verdict.CheckLeftovers(before);
  std::vector<std::string> complaints = world.publishers().complaints();
  const auto& more = world.runners().complaints();
  complaints.insert(complaints.end(), more.begin(), more.end());
  world.consumer().Signal(SIGTERM);
  if (world.consumer().WaitFor(Millis(15'000)) != 0)
    complaints.emplace_back("the HTTP consumer did not end well");
  world.emulator().Signal(SIGTERM);
  if (world.emulator().WaitFor(Millis(15'000)) != 0)
    complaints.emplace_back("the emulator did not end well");
  const bool ended = world.source_server().StopForGood(Millis(30'000)) &&
                     world.feed_servers().StopForGood(Millis(30'000));
  verdict.CheckProcesses(complaints, ended, options.world.folder);
  fmt::print("{} passed, {} failed\n", verdict.passed(), verdict.failed());
  return verdict.failed() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::chaos

int main(int argc, char** argv) {
  lockstep::chaos::Options options;
  CLI::App app{"Chaos: see the comment at the top of its source, and scripts/chaos"};
  app.add_option("--minutes", options.minutes)->capture_default_str();
  app.add_option("--seed", options.world.seed)->capture_default_str();
  app.add_option("--rate", options.rate, "events a second")->capture_default_str();
  app.add_option("--folder", options.world.folder, "for everything that the run makes");
  app.add_option("--bin", options.world.bin, "the folder of our programs");
  app.add_option("--patience", options.patience, "seconds without progress before it is judged")
      ->capture_default_str();
  app.add_flag("--plan", options.plan, "only show the schedule");
  CLI11_PARSE(app, argc, argv);
  lockstep::log::Configure({.level = lockstep::log::Level::kWarning});
  try {
    return lockstep::chaos::Run(options);
  } catch (const std::exception& e) {
    fmt::print(stderr, "chaos: {}\n", e.what());
    return 3;
  }
}
