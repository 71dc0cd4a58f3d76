// The demo's own part: writes videos as the source service does, shows how they travel, and in the
// end compares both sides. scripts/demo starts everything else.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <random>
#include <thread>

#include "examples/catalog/catalog_service.h"
#include "platform/clock.h"
#include "platform/status.h"
#include "postgres/identifier.h"

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
    "SELECT (SELECT count(*) FROM catalog.video_outbox_published),"
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
    written = i + 1;
    std::this_thread::sleep_until(start + std::chrono::microseconds(1'000'000) * i / options.rate);
  }
  return absl::OkStatus();
}

constexpr int kBarWidth = 32;
constexpr int kLines = 4;

std::string Bar(int64_t done, int64_t whole) {
  const auto filled = static_cast<int>(whole == 0 ? 0 : done * kBarWidth / whole);
  std::string bar;
  for (int i = 0; i < kBarWidth; ++i) bar += i < filled ? "█" : "░";
  return bar;
}

void Line(const char* name, int64_t done, int64_t whole, const std::string& rest) {
  fmt::print("\x1b[2K  {:<11} {} {:>6}  {}\n", name, Bar(std::min(done, whole), whole), done, rest);
}

struct DemoState {
  int64_t target = 0;     // changes that the source will make
  int64_t written = 0;    // changes that it has committed
  int64_t published = 0;  // outbox rows that Pub/Sub has
  int64_t applied = 0;    // events in the runner's inbox
  int64_t videos = 0;     // rows in the source
  int64_t rows = 0;       // rows in the read model
  Millis elapsed{0};
};

// Shows the demo's state: redrawn in place on a terminal, a plain line now and then elsewhere.
class DemoView {
 public:
  void Show(const DemoState& state, bool at_once = false) {
    if (!terminal_) {
      if (!at_once && state.elapsed - last_line_ < Millis(1000)) return;
      last_line_ = state.elapsed;
      fmt::print(
          "{:5.1f}s  written {}/{}  published {}  applied {}  source rows {}  read model rows {}\n",
          static_cast<double>(state.elapsed.count()) / 1000, state.written, state.target,
          state.published, state.applied, state.videos, state.rows);
      std::fflush(stdout);
      return;
    }
    if (drawn_) fmt::print("\x1b[{}A", kLines);
    drawn_ = true;
    Line("written", state.written, state.target, fmt::format("changes, {} videos", state.videos));
    Line("published", state.published, state.target,
         fmt::format("{} wait in the outbox",
                     std::max<int64_t>(0, state.written - state.published)));
    Line("applied", state.applied, state.target,
         fmt::format("{} rows in the read model", state.rows));
    fmt::print("\x1b[2K  behind by {} changes after {:.1f} s\n",
               std::max<int64_t>(0, state.written - state.applied),
               static_cast<double>(state.elapsed.count()) / 1000);
    std::fflush(stdout);
  }

 private:
  const bool terminal_ = isatty(STDOUT_FILENO) != 0;
  bool drawn_ = false;
  Millis last_line_{-10'000};
};

// The same columns on both sides, as text.
constexpr const char* kColumns[] = {"video_id",         "uploader_id",  "title",      "description",
                                    "duration_seconds", "published_at", "deleted_at", "version"};
constexpr int kShownDifferences = 10;

absl::StatusOr<postgres::Result> ReadVideos(postgres::Connection& connection,
                                            std::string_view table) {
  return connection.Execute(postgres::FillNames(
      "SELECT {columns} FROM {table} ORDER BY video_id",
      {{"columns", fmt::format("{}", fmt::join(kColumns, ", "))}, {"table", table}}));
}

std::string Difference(const postgres::Result& a, int i, const postgres::Result& b, int j) {
  for (int column = 0; column < a.columns(); ++column) {
    if (a.Optional(i, column) == b.Optional(j, column)) continue;
    return fmt::format("video {}: {} is '{}' in the source and '{}' in the read model",
                       a.Text(i, 0), kColumns[column], a.Optional(i, column).value_or("NULL"),
                       b.Optional(j, column).value_or("NULL"));
  }
  return "";
}

class Demo {
 public:
  explicit Demo(const Options& options) : options_(options) {}

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
      if (last && state.applied >= written_) {
        view_.Show(state, /*at_once=*/true);  // leaves the last picture standing
        return Judge();
      }
      if (last && std::chrono::steady_clock::now() > give_up) {
        return absl::DeadlineExceededError(
            fmt::format("after {} s only {} of {} changes are applied", options_.timeout_seconds,
                        state.applied, state.written));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
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

  // The catalogue's videos against the read model's, row by row and column by column.
  absl::Status Judge() {
    ASSIGN_OR_RETURN(const postgres::Result a, ReadVideos(*source_, "catalog.video"));
    ASSIGN_OR_RETURN(const postgres::Result b,
                     ReadVideos(*read_model_, "catalog_read.video_projection"));
    int64_t different = 0;
    const auto differs = [&](const std::string& sentence) {
      if (++different <= kShownDifferences) fmt::print("  {}\n", sentence);
    };
    int i = 0;
    int j = 0;
    while (i < a.rows() || j < b.rows()) {  // both are in the order of video_id
      const int order = i == a.rows() ? 1 : j == b.rows() ? -1 : a.Text(i, 0).compare(b.Text(j, 0));
      if (order < 0) {
        differs(fmt::format("video {} is missing in the read model", a.Text(i++, 0)));
      } else if (order > 0) {
        differs(fmt::format("video {} is in the read model only", b.Text(j++, 0)));
      } else if (const std::string what = Difference(a, i++, b, j++); !what.empty()) {
        differs(what);
      }
    }
    if (different > 0) {
      return Internal("the read model differs from the source in {} of {} rows", different,
                      a.rows());
    }
    fmt::print("\nThe read model equals the source: {0} of {0} rows, column by column.\n",
               a.rows());
    return absl::OkStatus();
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
