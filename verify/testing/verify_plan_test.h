#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "projections/testing/test_group.h"
#include "tests/support/test_database.h"
#include "verify/deep.h"
#include "verify/exchange.h"
#include "verify/plan.h"
#include "verify/verify.h"

namespace lockstep::verify {

inline constexpr char kDeclared[] = R"(backfill: videos
outbox: catalog.outbox
topic: catalog.events
table: catalog.videos
key: [tenant, video_id]
aggregate_type: video
aggregate_id: video_id
version: version
tenant: tenant
event_type: VideoSaved
payload:
  fields: {id: video_id, title: title, seconds: seconds, price: price, tags: tags, raw: raw}
)";

inline constexpr char kGroup[] = R"(group: feed
subscription: videos.feed
projections:
  - name: videos
    table: rm.videos
    key:
      owner: {attribute: tenant_id}
      video: {field: id}
    version: version
    deleted_at: deleted_at
    events:
      VideoSaved:
        replace:
          title: title
          length: {field: seconds}
          price: price
          tags: {field: tags, as: jsonb}
          raw: raw
          kind: {value: film}
          seen_at: {now: true}
          event: {attribute: event_id}
      VideoGone: {delete: true}
  - name: totals
    table: rm.totals
    key: {owner: {attribute: tenant_id}}
    events:
      VideoSaved: {increment: {n: {value: 1}}}
)";

inline constexpr char kSource[] = R"(
CREATE SCHEMA catalog;
CREATE TABLE catalog.videos (tenant text, video_id uuid, version int NOT NULL, title text,
  seconds int, price numeric, tags jsonb, raw bytea, PRIMARY KEY (tenant, video_id));
INSERT INTO catalog.videos
SELECT 't' || g % 3, md5(g::text)::uuid, 1 + g % 4, nullif('title ' || g, 'title 7'), g, g / 4.0,
       jsonb_build_object('b', g, 'a', ARRAY[1, 2]), decode(md5(g::text), 'hex')
  FROM generate_series(1, 300) g)";

inline constexpr char kReplica[] = R"(
CREATE SCHEMA rm;
CREATE TABLE rm.videos (owner text, video uuid, version bigint, title varchar(40), length bigint,
  price numeric(8, 1), tags jsonb, raw text, kind text, seen_at timestamptz, event text,
  note text, deleted_at timestamptz, PRIMARY KEY (owner, video));
INSERT INTO rm.videos
SELECT 't' || g % 3, md5(g::text)::uuid, 1 + g % 4, nullif('title ' || g, 'title 7'), g, g / 4.0,
       jsonb_build_object('a', ARRAY[1, 2], 'b', g), encode(decode(md5(g::text), 'hex'), 'base64'),
       'film',
       now(), 'e', 'n', NULL
  FROM generate_series(1, 300) g)";

// Key texts of a row of both.
inline std::string Where(int g) { return fmt::format("video = md5('{}')::uuid", g); }

// A source and a replica of 300 equal videos, under other names and types. Test code.
class VerifyPlanTest : public ::testing::Test {
 protected:
  void SetUp() override { Load(kDeclared, kGroup); }

  void Load(const std::string& declared, const std::string& group) {
    const projections::TempFile file("backfill.yaml", declared);
    auto loaded = publisher::LoadDeclaration(file.path());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    declaration_ = *std::move(loaded);
    auto of = projections::LoadText(group, "", {.state_schema = "lockstep_state"});
    ASSERT_TRUE(of.ok()) << of.status();
    group_ = *std::move(of);
  }
  void MakeTables() {
    source_.Run(kSource);
    replica_.Run(kReplica);
    at_source_ = source_.Connect();
    at_replica_ = replica_.Connect();
  }
  absl::StatusOr<std::vector<VerifyTable>> Plan(const std::string& projection = "") {
    return PlanVerify(declaration_, group_.projector->plan(), projection);
  }
  std::string PlanError(const std::string& projection = "") {
    return std::string(Plan(projection).status().message());
  }

  // "class key columns" of what a deep comparison finds.
  std::vector<std::string> Deep() {
    const VerifyTable table = Plan()->front();
    const auto types = ReadKeyTypes(*at_replica_, table.replica);
    EXPECT_TRUE(types.ok()) << types.status();
    VerifySide source(*at_source_, table.source, *types);
    VerifySide replica(*at_replica_, table.replica, *types);
    const auto deep = DeepCompare::Make(declaration_, *group_.projector, table, source, replica);
    EXPECT_TRUE(deep.ok()) << deep.status();
    if (!deep.ok()) return {};
    Verify verify(
        {.source = source,
         .replica = replica,
         .passed = [&](const std::stop_token&) { return passed_ ? passed_() : absl::OkStatus(); },
         .deep = [&](const KeyRange& range, auto* found) { return (*deep)->InRange(range, found); },
         .deep_keys = [&](const auto& keys, auto* found) { return (*deep)->OfKeys(keys, found); }},
        {.range_keys = 40});
    const auto result = verify.Run({});
    EXPECT_TRUE(result.ok()) << result.status();
    std::vector<std::string> lines;
    for (const Difference& one : result->differences) {
      lines.push_back(fmt::format("{} {} {}", Name(one.kind), one.key[1].substr(0, 8),
                                  fmt::join(one.columns, ",")));
      differences_.push_back(one);
    }
    return lines;
  }

  // What one side wrote, compared at the other.
  std::string Export(const std::vector<AskedRange>* ranges = nullptr) {
    const VerifyTable table = Plan()->front();
    const auto types = ReadKeyTypes(*at_source_, table.source);
    VerifySide side(*at_source_, table.source, *types);
    std::string text;
    const ExchangeHeader header{"videos", "videos", *types,
                                [&]() -> absl::StatusOr<std::optional<publisher::PublishedEvent>> {
                                  if (published_) published_();
                                  return newest_;
                                }};
    const auto write = [&](const std::string& line) { text += line + "\n"; };
    EXPECT_EQ(ranges == nullptr ? ExportRanges(side, header, write)
                                : ExportKeys(side, header, *ranges, write),
              absl::OkStatus());
    return text;
  }
  absl::StatusOr<FileComparison> CompareFile(const std::string& text) {
    std::istringstream from(text);
    return CompareWithFile(from, Plan()->front(), "videos", *at_replica_,
                           [this](const FileSource& source, const std::stop_token&) {
                             file_source_ = source;
                             return absl::OkStatus();
                           },
                           {});
  }

  testing::TestDatabase source_, replica_;
  std::unique_ptr<postgres::Connection> at_source_, at_replica_;
  publisher::Declaration declaration_;
  projections::GroupDeclaration group_;
  std::function<absl::Status()> passed_;
  std::optional<publisher::PublishedEvent> newest_;  // of the next file
  std::function<void()> published_;                  // called when that is asked for
  FileSource file_source_;                           // of the last one
  std::vector<Difference> differences_;
};

}  // namespace lockstep::verify
