#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "platform/status.h"
#include "projections/testing/random_case.h"
#include "projections/testing/test_group.h"

// The set-based path against a naive applier, on random tables, mappings and streams: 10,000
// streams, 100 to a table. LOCKSTEP_SEED runs one other seed; a failure names the one to give.
namespace lockstep::projections {
namespace {

using ::testing::UnorderedElementsAreArray;

constexpr int kStreams = 100;
constexpr int kTables = 10;

uint64_t FirstSeed() {
  const char* given = std::getenv("LOCKSTEP_SEED");
  return given == nullptr ? 20'261'116 : std::strtoull(given, nullptr, 10);
}

class EquivalenceTest : public ::testing::TestWithParam<int> {};

TEST_P(EquivalenceTest, BatchesEqualOneByOne) {
  testing::TestDatabase db;
  auto connection = db.Connect();
  db.Run("CREATE SCHEMA rnd");
  ASSERT_TRUE(MigrateState(*connection).ok());
  for (int number = 0; number < kTables; ++number) {
    const uint64_t seed = FirstSeed() + static_cast<uint64_t>(GetParam() * kTables + number);
    RandomCase random(seed, number, kStreams);
    SCOPED_TRACE(
        fmt::format("LOCKSTEP_SEED={} projections_pgtest "
                    "--gtest_filter='*BatchesEqualOneByOne/0'\n{}{}{}",
                    seed, random.schema().Ddl(), random.schema().Proto(), random.schema().Yaml()));
    db.Run(random.schema().Ddl());
    const auto descriptors =
        random.schema().Proto().empty() ? nullptr : DescriptorsOf(random.schema().Proto());
    const auto group = LoadText(random.schema().Yaml(), descriptors ? descriptors->path() : "",
                                TestGroup::DefaultOptions());
    ASSERT_TRUE(group.ok()) << group.status();
    ASSERT_TRUE(group->projector->Check(*connection).ok()) << group->projector->Check(*connection);
    while (true) {
      const std::vector<RandomCase::Sent> batch = random.NextBatch();
      if (batch.empty()) break;
      std::vector<Event> events;
      ApplyOptions options;
      for (const RandomCase::Sent& sent : batch) {
        events.push_back(sent.event);
        options.covered.push_back(sent.covered);
      }
      const auto outcomes = ApplyTo(*group->projector, *connection, events, options);
      ASSERT_TRUE(outcomes.ok()) << outcomes.status();
      for (size_t i = 0; i < batch.size(); ++i) {
        ASSERT_EQ((*outcomes)[i], batch[i].expected)
            << "event " << i << ": " << batch[i].event.aggregate.id << " v"
            << batch[i].event.version;
      }
    }
    ASSERT_THAT(RowsOf(db, random.schema().Query()), UnorderedElementsAreArray(random.Expected()));
    ASSERT_THAT(RowsOf(db, random.CountQuery()),
                UnorderedElementsAreArray(random.ExpectedCounts()));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, EquivalenceTest, ::testing::Range(0, 10));

}  // namespace
}  // namespace lockstep::projections
