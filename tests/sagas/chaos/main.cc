// Sagas under attack: three orchestrators that are killed and stopped, a Postgres that restarts, an
// HTTP participant that misbehaves and keeps a ledger of its own. In the end every saga must be as
// the ledger says. Run by scripts/chaos --sagas; docs/reliability-lab.md says what it tries.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <exception>
#include <limits>
#include <thread>

#include "platform/log/log.h"
#include "platform/status.h"
#include "tests/chaos/system/now.h"
#include "tests/sagas/chaos/customers.h"
#include "tests/sagas/chaos/findings.h"
#include "tests/sagas/chaos/operators.h"
#include "tests/sagas/chaos/storm.h"
#include "tests/sagas/chaos/verdict.h"
#include "tests/sagas/chaos/world.h"

namespace lockstep::sagachaos {
namespace {

constexpr int kOrchestrators = 3;
constexpr int kShown = 10;
constexpr Millis kTick{20};
constexpr Millis kBetweenLooks{1'000};

struct Options {
  WorldOptions world;
  int sagas = 500;
  int rate = 30;      // sagas a second
  int patience = 60;  // seconds without progress
};

class Run {
 public:
  explicit Run(const Options& options)
      : options_(options),
        world_(options.world),
        customers_(world_, {options.world.seed, options.sagas, options.rate}),
        operators_(world_, options.world.seed),
        storm_(world_, customers_, options.world.seed) {}

  int Do() {
    world_.orchestrators().Start(kOrchestrators);
    customers_.Start();
    // The last few end in peace.
    const SteadyTime began = chaos::Now();
    const Millis longest(20'000 + int64_t{3'000} * options_.sagas / options_.rate);
    while (chaos::Now() < began + longest && (!customers_.ended() || ManyAreUnderWay())) {
      storm_.Tick();
      operators_.Look(customers_.TakeSome());
      Tick();
    }
    storm_.Calm();
    while (!customers_.ended()) Tick();
    operators_.Finish();
    while (!operators_.idle()) Tick();
    connection_ = world_.Connect();
    Wait();
    // Whoever stood still has gone on by now: what the ledger says is what has happened.
    Settle();
    Wait();
    Report();
    Judge();
    return failed_ == 0 ? 0 : 1;
  }

 private:
  void Tick() {
    world_.orchestrators().Tick();
    world_.server().Tick();
    operators_.Tick();
    std::this_thread::sleep_for(kTick);
  }

  // Asked now and then; yes while nobody knows.
  bool ManyAreUnderWay() {
    if (chaos::Now() < asked_ + kBetweenLooks) return true;
    asked_ = chaos::Now();
    const auto connection = postgres::Connection::Open({.url = world_.url()});
    if (!connection.ok()) return true;
    const auto count =
        (*connection)
            ->Number(
                "SELECT count(*) FROM lockstep.sagas WHERE state IN ('Running', 'Compensating')");
    if (!count.ok()) return true;
    if (*count < fewest_) stuck_since_ = asked_;
    fewest_ = std::min(fewest_, *count);
    const bool stuck = asked_ > stuck_since_ + std::chrono::seconds(options_.patience);
    return *count > options_.sagas / 50 && !stuck;
  }

  // Until no saga is under way, or nothing moves any more.
  void Wait() {
    int last = -1;
    SteadyTime moved = chaos::Now();
    while (true) {
      for (int i = 0; i < 10; ++i) Tick();
      const int under_way = CountUnderWay(*connection_);
      if (under_way == 0) return;
      if (under_way != last) moved = chaos::Now();
      last = under_way;
      if (chaos::Now() > moved + std::chrono::seconds(options_.patience)) return;
    }
  }

  // The person for whom sagas with a step in doubt wait: looks into the ledger, and says.
  void Settle() {
    const Verdict verdict(storm_.attacks());
    const auto sagas = ReadSagas(*connection_, world_);
    std::vector<std::string> unexplained;
    for (const Doubt& doubt : ReadDoubts(*connection_)) {
      ++doubts_;
      const Saga& saga = sagas.at(doubt.id);
      if (doubt.step != "charge") {
        unexplained.push_back(
            fmt::format("saga {}: {} is in doubt, and may be repeated", saga.key, doubt.step));
        continue;
      }
      if (!verdict.DoubtIsExplained(saga, doubt.since)) {
        unexplained.push_back(fmt::format("saga {} is in doubt without reason", saga.key));
      }
      bool done = false;
      for (const Request& request : saga.requests) {
        done = done || (request.path == "charge" && request.did == "did");
      }
      Plan& plan = customers_.plans().at(saga.key);
      (done ? plan.said_done : plan.said_failed) = true;
      const auto said =
          connection_->Run("SELECT lockstep.saga_signal($1::uuid, 'charge', $2, $3::jsonb)",
                           doubt.id, done ? "succeeded" : "failed", "{\"id\": \"by hand\"}");
      if (!said.ok()) unexplained.push_back(fmt::format("{}: {}", saga.key, MessageOf(said)));
    }
    Check("every saga that waits for a person has a charge in doubt, and a reason", unexplained);
  }

  void Report() {
    fmt::print("chaos: {} sagas started, {} rolled back, {} transactions tried again; {}\n",
               customers_.plans().size(), customers_.rolled_back().size(), customers_.asked_again(),
               Describe(*connection_));
    fmt::print(
        "chaos: {} to cancel, {} paused and resumed, {} orders refused, {} settled by hand\n",
        operators_.cancelled().size(), operators_.paused(), operators_.refused(), doubts_);
    fmt::print("chaos:");
    for (const auto& [what, count] : storm_.counts()) fmt::print(" {} {};", count, what);
    fmt::print(" Postgres started {} times\n", world_.server().starts());
    std::fflush(stdout);
  }

  void Judge() {
    customers_.Stop();
    const Verdict verdict(storm_.attacks());
    const auto sagas = ReadSagas(*connection_, world_);
    std::map<std::string, const Saga*> by_key;
    std::vector<std::string> strangers, wrong;
    int repeated = 0;
    for (const auto& [id, saga] : sagas) {
      const auto plan = customers_.plans().find(saga.key);
      if (plan == customers_.plans().end()) {
        strangers.push_back(fmt::format("nobody started saga {} ({})", id, saga.key));
        continue;
      }
      plan->second.may_cancel = operators_.cancelled().contains(id);
      by_key[saga.key] = &saga;
      for (std::string& complaint : verdict.Judge(saga, plan->second)) {
        wrong.push_back(std::move(complaint));
      }
      for (const Request& request : saga.requests) repeated += request.did == "again" ? 1 : 0;
    }
    for (const auto& plan : customers_.plans()) {
      if (!by_key.contains(plan.first)) strangers.push_back("lost: saga " + plan.first);
    }
    fmt::print("chaos: {} requests came again and did nothing\n", repeated);
    Check("the sagas are those that were started, each once", strangers);
    Check("a repeated start answers the same saga", customers_.complaints());
    Check("every saga ended as the ledger and the database's effects say", wrong);

    world_.orchestrators().Finish();
    Check("orchestrators end when they are asked to, and only then",
          world_.orchestrators().complaints());
    Check("nothing is left behind", FindLeftovers(*connection_, Millis(10'000)));
    connection_.reset();
    Check("Postgres ends", world_.server().StopForGood(Millis(30'000))
                               ? std::vector<std::string>{}
                               : std::vector<std::string>{"it does not"});
    fmt::print("{} passed, {} failed\n", passed_, failed_);
  }

  void Check(const std::string& what, const std::vector<std::string>& complaints) {
    complaints.empty() ? ++passed_ : ++failed_;
    fmt::print("{} {}\n", complaints.empty() ? "passed" : "FAILED", what);
    for (size_t i = 0; i < complaints.size() && i < kShown; ++i)
      fmt::print("  {}\n", complaints[i]);
    if (complaints.size() > kShown) fmt::print("  … {} in all\n", complaints.size());
    std::fflush(stdout);
  }

  const Options options_;
  World world_;
  Customers customers_;
  Operators operators_;
  Storm storm_;
  std::unique_ptr<postgres::Connection> connection_;
  SteadyTime asked_{}, stuck_since_{};
  int64_t fewest_ = std::numeric_limits<int64_t>::max();
  int doubts_ = 0, passed_ = 0, failed_ = 0;
};

}  // namespace
}  // namespace lockstep::sagachaos

int main(int argc, char** argv) {
  lockstep::sagachaos::Options options;
  CLI::App app{"Sagas under attack: see the comment at the top of its source, and scripts/chaos"};
  app.add_option("--sagas", options.sagas)->capture_default_str();
  app.add_option("--rate", options.rate, "sagas a second")->capture_default_str();
  app.add_option("--seed", options.world.seed)->capture_default_str();
  app.add_option("--folder", options.world.folder, "for everything that the run makes")->required();
  app.add_option("--bin", options.world.bin, "the folder of our programs")->required();
  app.add_option("--source", options.world.source, "the folder of participant.js")->required();
  app.add_option("--patience", options.patience, "seconds without progress before it is judged")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  lockstep::log::Configure({.level = lockstep::log::Level::kWarning});
  try {
    fmt::print("chaos: {} sagas, {} a second, seed {}\n", options.sagas, options.rate,
               options.world.seed);
    std::fflush(stdout);
    return lockstep::sagachaos::Run(options).Do();
  } catch (const std::exception& e) {
    fmt::print(stderr, "chaos: {}\n", e.what());
    return 3;
  }
}
