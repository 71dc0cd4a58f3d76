#include "bench/runner_world.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <unordered_map>

#include "platform/duration.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/migrator.h"
#include "sql/migrations.h"

namespace lockstep::bench {
namespace {

constexpr char kTables[] = R"(
DROP SCHEMA IF EXISTS bench CASCADE;
CREATE SCHEMA bench;
CREATE TABLE bench.video (
  video_id uuid PRIMARY KEY, title text, description text, duration_seconds bigint,
  version bigint NOT NULL, updated_at timestamptz NOT NULL))";

constexpr char kProjection[] = R"(group: bench
subscription: bench.events.feed
projections:
  - name: videos
    table: bench.video
    key: {video_id: {field: video_id, type: uuid}}
    version: version
    updated_at: updated_at
    events:
      Created: {replace: [title, description, duration_seconds]}
      Updated: {merge: [title, description, duration_seconds]}
)";

constexpr int kKnownRows = 20'000;
constexpr int kHotRows = 10;

void Check(const absl::Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "bench: {}\n", MessageOf(status));
  std::exit(1);
}

std::string Uuid(Ids ids, std::mt19937_64& random, int64_t number) {
  const uint64_t low = random();
  if (ids == Ids::kRandom) {
    const uint64_t high = random();
    return fmt::format("{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}", high >> 32, (high >> 16) & 0xffff,
                       high & 0xfff, low >> 52, low & 0xffffffffffff);
  }
  // As enqueue makes them: milliseconds first (version 7).
  const uint64_t millis = 1'800'000'000'000 + static_cast<uint64_t>(number) / 20;
  return fmt::format("{:08x}-{:04x}-7{:03x}-8{:03x}-{:012x}", millis >> 16, millis & 0xffff,
                     number & 0xfff, low >> 52, low & 0xffffffffffff);
}

}  // namespace

std::string_view Name(Stream stream) {
  switch (stream) {
    case Stream::kCreate:
      return "create-heavy";
    case Stream::kUpdate:
      return "update-heavy";
    case Stream::kHotKey:
      break;
  }
  return "hot-key";
}

std::vector<pubsub::Message> MakeEvents(Stream stream, Ids ids, int count, int seed) {
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  // Streams of different seeds follow each other in time.
  const int64_t first = static_cast<int64_t>(seed) * 10'000'000;
  std::vector<std::string> videos;
  std::unordered_map<size_t, int64_t> versions;
  std::vector<pubsub::Message> events;
  events.reserve(static_cast<size_t>(count));
  const std::string occurred = FormatTimestamp(Clock::System().Now());
  for (int i = 0; i < count; ++i) {
    const uint64_t dice = random() % 100;
    const bool fresh = stream == Stream::kCreate ? dice < 90 || videos.empty()
                                                 : videos.size() < kKnownRows && dice >= 10;
    size_t video = videos.size();
    if (fresh || videos.empty()) {
      videos.push_back(Uuid(Ids::kRandom, random, i));
    } else if (stream == Stream::kHotKey && dice % 2 == 0) {
      video = random() % std::min<size_t>(kHotRows, videos.size());
    } else {
      video = random() % videos.size();
    }
    const int64_t version = ++versions[video];
    pubsub::Message message;
    message.ordering_key = videos[video];
    message.data =
        version == 1
            ? fmt::format(R"({{"video_id":"{}","title":"Title {}","description":)"
                          R"("A description of ordinary length, {}","duration_seconds":{}}})",
                          videos[video], i, dice, dice * 10)
            : fmt::format(R"({{"video_id":"{}","title":"Title {}"}})", videos[video], i);
    message.attributes = {{"event_id", Uuid(ids, random, first + i)},
                          {"event_type", version == 1 ? "Created" : "Updated"},
                          {"aggregate_type", "video"},
                          {"aggregate_id", videos[video]},
                          {"version", fmt::format("{}", version)},
                          {"schema_version", "1"},
                          {"occurred_at", occurred},
                          {"content_type", "application/json"},
                          {"topic", "bench.video.changed.v1"},
                          {"sequence", fmt::format("{}", i)}};
    events.push_back(std::move(message));
  }
  return events;
}

RunnerWorld::RunnerWorld(std::string database, std::string schema)
    : database_(std::move(database)), schema_(std::move(schema)) {
  auto connection = postgres::Connection::Open({.url = database_, .statement_timeout = Millis(0)});
  Check(connection.status());
  connection_ = *std::move(connection);
  Check(postgres::Migrator(*connection_, schema_, sql::StateMigrations()).Up().status());
  Check(connection_->Run(kTables));
  Check(connection_->Run("CREATE EXTENSION IF NOT EXISTS pg_prewarm"));
  file_ = (std::filesystem::temp_directory_path() /
           fmt::format("lockstep-bench-{}-{}.yaml", schema_, getpid()))
              .string();
  std::ofstream(file_) << kProjection;
}

RunnerWorld::~RunnerWorld() { std::filesystem::remove(file_); }

void RunnerWorld::Reset(int64_t inbox_rows, Ids ids) {
  // The group will have generation 1 again: the rows stand among its own.
  Check(connection_->Run(
      fmt::format("TRUNCATE bench.video, {0}.offsets, {0}.key_state, {0}.parked, {0}.dead_letters; "
                  "DELETE FROM {0}.consumer_groups; ALTER SEQUENCE {0}.generations RESTART",
                  schema_)));
  const auto wanted = std::make_pair(inbox_rows, ids);
  if (inbox_rows == 0 || filled_ != wanted) FillInbox(inbox_rows, ids);
  filled_ = wanted;
  Check(connection_->Run(fmt::format("VACUUM ANALYZE {}.inbox", schema_)));
  Check(connection_->Run("CHECKPOINT"));
  Check(connection_->Run(fmt::format("SELECT pg_prewarm('{}.inbox_pkey')", schema_)));
}

// 31 days of events. The index is built at the end: minutes faster than row by row.
void RunnerWorld::FillInbox(int64_t rows, Ids ids) {
  Check(connection_->Run(fmt::format("TRUNCATE {}.inbox", schema_)));
  if (rows == 0) return;
  const char* const id =
      ids == Ids::kRandom
          ? "gen_random_uuid()"
          : "(lpad(to_hex(1790000000000 + n / 20), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, "
            "'0') || '8' || substr(md5(n::text), 1, 15))::uuid";
  Check(connection_->Run(fmt::format(
      "ALTER TABLE {0}.inbox DROP CONSTRAINT inbox_pkey; "
      "INSERT INTO {0}.inbox (generation, event_id, received_at) SELECT 1, {1}, now() - "
      "interval '31 days' * (1 - n / {2}.0) FROM generate_series(1, {2}) n; "
      "SET maintenance_work_mem = '512MB'; "
      "ALTER TABLE {0}.inbox ADD CONSTRAINT inbox_pkey PRIMARY KEY (generation, event_id)",
      schema_, id, rows)));
}

void RunnerWorld::Declare(const std::string& group_file) {
  std::ofstream(file_) << (group_file.empty() ? kProjection : group_file);
}

void RunnerWorld::Execute(const std::string& sql) { Check(connection_->Run(sql)); }

projections::GroupDeclaration RunnerWorld::Declaration() const {
  auto declared = projections::LoadGroup(file_, {.state_schema = schema_});
  Check(declared.status());
  return *std::move(declared);
}

int64_t RunnerWorld::Count(const std::string& sql) {
  const auto result = connection_->Execute(sql);
  Check(result.status());
  return result->Int(0, 0);
}

}  // namespace lockstep::bench
