// scripts/bench pipeline (needs: postgres): source, publisher, emulator, runner and read model on
// this machine. Writers write as fast as the rest can follow: events/s enqueued, published and
// applied at once, and what part of the CPU each takes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/machine_cpu.h"
#include "bench/pipeline_world.h"
#include "platform/log/log.h"

namespace lockstep::bench {
namespace {

using Steady = std::chrono::steady_clock;

struct Options {
  std::string database;
  int writers = 2;
  int batch = 100;
  int ahead = 20'000;
  int seconds = 20;
  int warmup = 5;
  bool json = false;
};

// Which part a server process belongs to.
constexpr char kSessions[] = R"(
SELECT pid, CASE WHEN application_name = 'bench writer' THEN 'Postgres, for the writers'
                 WHEN application_name LIKE 'lockstep-publisher%' THEN 'Postgres, for the publisher'
                 WHEN application_name LIKE 'lockstep-runner%' THEN 'Postgres, for the runner'
                 WHEN backend_type IN ('client backend', 'autovacuum worker') THEN ''
                 ELSE 'Postgres, by itself' END AS part
FROM pg_stat_activity)";

// A moment: how far each stage has come, and the CPU time of each part.
struct Moment {
  Steady::time_point at;
  int64_t enqueued = 0, published = 0, applied = 0;
  std::map<std::string, double> cpu;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), pipeline_(options.database), control_(Connect(options.database)) {}

  nlohmann::ordered_json Run() {
    std::vector<std::jthread> writers;
    for (int i = 0; i < options_.writers; ++i) {
      writers.emplace_back([this](const std::stop_token& stop) { Write(stop); });
    }
    Throttle(std::chrono::seconds(options_.warmup));
    const Moment from = Look();
    Throttle(std::chrono::seconds(options_.seconds));
    const Moment to = Look();
    go_ = false;
    if (to.applied == from.applied) {
      pipeline_.Stop();
      Die("nothing was applied, see the logs in", pipeline_.folder());
    }
    return Tell(from, to);
  }

 private:
  // An event makes a row of its own: its aggregate's first version.
  void Write(const std::stop_token& stop) {
    const auto connection = Connect(options_.database, "bench writer");
    const std::string title(200, 'x');
    while (!stop.stop_requested()) {
      if (!go_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        continue;
      }
      Check("enqueue_many", connection
                                ->Execute(postgres::Statement{"many", R"(
SELECT lockstep.enqueue_many('src.video_outbox', array_agg('bench.video.changed.v1'::text), array_agg('video'::text),
         array_agg(id::text), array_agg('Created'::text), array_agg(1::bigint),
         array_agg(convert_to(format('{"video_id":"%s","title":"%s"}', id, $2::text), 'UTF8')),
         content_types => array_agg('application/json'::text))
FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, $1::int)) e)"},
                                          options_.batch, title)
                                .status());
      enqueued_ += options_.batch;
    }
  }

  // Lets the writers go on while the read model is not too far behind. The server's count of
  // inserts is a second late at most, and costs nothing.
  void Throttle(Steady::duration time) {
    for (const auto end = Steady::now() + time; Steady::now() < end;) {
      const auto applied = control_->Number(
          "SELECT n_tup_ins FROM pg_stat_user_tables WHERE relid = 'bench.video'::regclass");
      Check("pg_stat_user_tables", applied.status());
      go_ = enqueued_ - *applied < options_.ahead;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  Moment Look() {
    Moment moment;
    const auto counts = control_->Execute(
        "SELECT (SELECT count(*) FROM src.video_outbox), (SELECT count(*) FROM "
        "src.video_outbox_published), (SELECT count(*) FROM bench.video)");
    Check("counting", counts.status());
    moment.enqueued = counts->Int(0, 0);
    moment.published = counts->Int(0, 1);
    moment.applied = counts->Int(0, 2);
    const auto sessions = control_->Execute(kSessions);
    Check("pg_stat_activity", sessions.status());
    moment.at = Steady::now();
    for (const postgres::Row row : *sessions) {
      const std::string part = row.String("part");
      if (!part.empty()) moment.cpu[part] += CpuSeconds(row.Int("pid"));
    }
    moment.cpu["publisher"] = CpuSeconds(pipeline_.publisher());
    moment.cpu["runner"] = CpuSeconds(pipeline_.runner());
    moment.cpu["emulator"] = CpuSeconds(pipeline_.emulator());
    return moment;
  }

  nlohmann::ordered_json Tell(const Moment& from, const Moment& to) const {
    const double seconds = std::chrono::duration<double>(to.at - from.at).count();
    const auto rate = [&](int64_t Moment::*stage) {
      return static_cast<double>(to.*stage - from.*stage) / seconds;
    };
    nlohmann::ordered_json report = {{"seconds", seconds},
                                     {"enqueued_per_s", rate(&Moment::enqueued)},
                                     {"published_per_s", rate(&Moment::published)},
                                     {"applied_per_s", rate(&Moment::applied)}};
    double all = 0;
    const auto used_by = [&](const std::string& part) {
      const auto before = from.cpu.find(part);
      return to.cpu.at(part) - (before == from.cpu.end() ? 0 : before->second);
    };
    for (const auto& [part, cpu] : to.cpu) all += used_by(part);
    const auto applied = static_cast<double>(to.applied - from.applied);
    for (const auto& [part, cpu] : to.cpu) {
      const double used = used_by(part);
      report["cpu"][part] = {{"share", used / all}, {"us_per_event", used * 1e6 / applied}};
    }
    report["cores_used"] = all / seconds;
    return report;
  }

  const Options& options_;
  Pipeline pipeline_;
  std::unique_ptr<postgres::Connection> control_;
  std::atomic<bool> go_ = false;
  std::atomic<int64_t> enqueued_ = 0;
};

void Print(const nlohmann::ordered_json& report) {
  fmt::print("events/s: enqueued {:.0f}, published {:.0f}, applied {:.0f}; {:.2f} cores at work\n",
             report["enqueued_per_s"].get<double>(), report["published_per_s"].get<double>(),
             report["applied_per_s"].get<double>(), report["cores_used"].get<double>());
  for (const auto& [part, figures] : report["cpu"].items()) {
    fmt::print("{:<30} {:>5.1f} %  {:>6.1f} us an event\n", part,
               100 * figures["share"].get<double>(), figures["us_per_event"].get<double>());
  }
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  lockstep::bench::Options options;
  CLI::App app{
      "Source and read model on this machine: events/s enqueued, published and applied at once, "
      "and the CPU of each part"};
  app.add_option("--database", options.database, "Postgres")
      ->envname("LOCKSTEP_TEST_PG")
      ->required();
  app.add_option("--writers", options.writers, "sessions that enqueue")->capture_default_str();
  app.add_option("--batch", options.batch, "events per transaction")->capture_default_str();
  app.add_option("--ahead", options.ahead, "events that the read model may be behind")
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "that count")->capture_default_str();
  app.add_option("--warmup", options.warmup, "seconds that don't")->capture_default_str();
  app.add_flag("--json", options.json, "one JSON object on stdout");
  CLI11_PARSE(app, argc, argv);
  lockstep::log::Configure({.level = lockstep::log::Level::kError});
  const auto report = lockstep::bench::Bench(options).Run();
  if (options.json) {
    fmt::print("{}\n", report.dump(2));
  } else {
    lockstep::bench::Print(report);
  }
  return 0;
}
