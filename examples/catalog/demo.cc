// The demo's own part: writes videos as the source service does, shows how they travel, and in the
// end compares both sides. scripts/demo starts everything else.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <random>
#include <thread>

#include "examples/catalog/catalog_service.h"
#include "examples/catalog/comparison.h"
#include "examples/catalog/demo_view.h"
#include "platform/status.h"

namespace lockstep::examples {
namespace {

struct Options {
  std::string source;
  std::string read_model;
  int changes = 2000;
  int rate = 300;
  uint64_t seed = 1;
  int timeout_seconds = 60;
};

constexpr char kPublished[] =
    "SELECT (SELECT count(*) FROM catalog.video_outbox WHERE published_at IS NOT NULL),"
    " (SELECT count(*) FROM catalog.video)";
constexpr char kApplied[] =
    "SELECT (SELECT count(*) FROM feed_state.inbox),"
    " (SELECT count(*) FROM catalog_read.video_projection)";

absl::StatusOr<std::unique_ptr<postgres::Connection>> Connect(const std::string& url) {
  postgres::ConnectionOptions options;
  options.url = url;
  options.application_name = "lockstep-demo";
  return postgres::Connection::Open(options);
}

// Creates first, then mostly updates, now and then a deletion: `rate` changes a second.
absl::Status Write(const Options& options, std::atomic<int64_t>& written) {
  ASSIGN_OR_RETURN(const auto connection, Connect(options.source));
  CatalogService service(*connection, options.seed);
  std::mt19937_64 random(options.seed + 1);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < options.changes; ++i) {
    const uint64_t dice = random() % 100;
    if (i < options.changes / 10 || dice < 30) {
      RETURN_IF_ERROR(service.CreateVideo());
    } else if (dice < 90) {
      RETURN_IF_ERROR(service.UpdateVideo());
    } else {
      RETURN_IF_ERROR(service.DeleteVideo());
    }
    written = service.changes();
    std::this_thread::sleep_until(start + std::chrono::microseconds(1'000'000) * i / options.rate);
  }
  return absl::OkStatus();
}

class Demo {
 public:
  explicit Demo(const Options& options) : options_(options), view_(isatty(STDOUT_FILENO) != 0) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(source_, Connect(options_.source));
    ASSIGN_OR_RETURN(read_model_, Connect(options_.read_model));
    std::atomic<bool> writing = true;
    absl::Status wrote;
    std::jthread writer([&] {
      wrote = Write(options_, written_);
      writing = false;
    });
    const auto start = std::chrono::steady_clock::now();
    const auto give_up = start + std::chrono::seconds(options_.timeout_seconds);
    while (true) {
      const bool last = !writing;
      ASSIGN_OR_RETURN(const DemoState state, Look(start));
      view_.Show(state);
      if (last && !wrote.ok()) return wrote;
      if (last && state.applied >= written_) break;
      if (last && std::chrono::steady_clock::now() > give_up) {
        return absl::DeadlineExceededError(
            fmt::format("after {} s only {} of {} changes are applied", options_.timeout_seconds,
                        state.applied, state.written));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    view_.Finish();
    return Judge();
  }

 private:
  absl::StatusOr<DemoState> Look(SteadyTime start) {
    DemoState state{.target = options_.changes, .written = written_};
    ASSIGN_OR_RETURN(const auto published, source_->Execute(kPublished));
    ASSIGN_OR_RETURN(const auto applied, read_model_->Execute(kApplied));
    state.published = published.Int(0, 0);
    state.videos = published.Int(0, 1);
    state.applied = applied.Int(0, 0);
    state.rows = applied.Int(0, 1);
    state.elapsed = std::chrono::duration_cast<Millis>(std::chrono::steady_clock::now() - start);
    return state;
  }

  absl::Status Judge() {
    ASSIGN_OR_RETURN(const Comparison comparison, Compare(*source_, *read_model_));
    if (comparison.Equal()) {
      fmt::print("\nThe read model equals the source: {} of {} rows, column by column.\n",
                 comparison.equal, comparison.rows);
      return absl::OkStatus();
    }
    for (const std::string& difference : comparison.differences) fmt::print("  {}\n", difference);
    return Internal("the read model differs from the source in {} of {} rows", comparison.different,
                    comparison.rows);
  }

  Options options_;
  DemoView view_;
  std::atomic<int64_t> written_ = 0;
  std::unique_ptr<postgres::Connection> source_;
  std::unique_ptr<postgres::Connection> read_model_;
};

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  lockstep::examples::Options options;
  CLI::App app{"Writes videos, shows how they travel to the read model, compares both sides"};
  app.add_option("--source", options.source, "the catalogue's database")->required();
  app.add_option("--read-model", options.read_model, "the feed's database")->required();
  app.add_option("--changes", options.changes, "how many changes to make")->capture_default_str();
  app.add_option("--rate", options.rate, "changes a second")->capture_default_str();
  app.add_option("--seed", options.seed, "of what is random")->capture_default_str();
  app.add_option("--timeout", options.timeout_seconds, "seconds")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status ran = lockstep::examples::Demo(options).Run();
  if (ran.ok()) return 0;
  fmt::print(stderr, "\ndemo: {}\n", lockstep::MessageOf(ran));
  return 1;
}
