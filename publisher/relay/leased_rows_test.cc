#include "publisher/relay/leased_rows.h"

#include <gmock/gmock.h>

namespace lockstep::publisher {
namespace {

const LeasedRows::ShapeOf kShape = [](const std::string&) { return RequestShape(); };

using ::testing::ElementsAre;
using ::testing::IsEmpty;

OutboxRow Row(const std::string& key, int64_t version, const std::string& token, int shard = 0) {
  OutboxRow row;
  row.aggregate_id = key;
  row.version = row.sequence = version;
  row.topic = "t";
  row.lock_token = token;
  row.shard = shard;
  return row;
}

TEST(LeasedRows, ARowIsInHandUntilItsRequestIsAnswered) {
  LeasedRows leased;
  leased.Add({Row("a", 1, "x"), Row("b", 1, "x")}, {});
  EXPECT_EQ(leased.rows(), 2u);
  const auto request = leased.Send(SteadyTime(std::chrono::hours(1)), kShape, 16);
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(leased.entries(*request).size(), 2u);
  EXPECT_EQ(leased.rows(), 2u) << "under way";
  EXPECT_FALSE(leased.Send({}, kShape, 16).has_value());
  const auto answered = leased.Answered(*request);
  ASSERT_TRUE(answered.has_value());
  EXPECT_EQ(answered->sent_at, SteadyTime(std::chrono::hours(1)));
  EXPECT_EQ(leased.rows(), 0u);
  EXPECT_FALSE(leased.Answered(*request).has_value()) << "once only";
}

TEST(LeasedRows, ALeaseLivesUntilItsLastRowIsMarked) {
  LeasedRows leased;
  leased.Add({Row("a", 1, "x"), Row("b", 1, "x"), Row("c", 1, "y")}, {});
  EXPECT_THAT(leased.live_tokens(), ElementsAre("x", "y"));
  leased.Marked(Row("a", 1, "x"));
  leased.Marked(Row("c", 1, "y"));
  EXPECT_THAT(leased.live_tokens(), ElementsAre("x"));
  leased.Marked(Row("b", 1, "x"));
  EXPECT_THAT(leased.live_tokens(), IsEmpty());
  leased.Marked(Row("b", 1, "x"));  // marked twice: its lease was lost in between
}

TEST(LeasedRows, KnowsWhetherRowsOfAShardAreUnderWay) {
  LeasedRows leased;
  leased.Add({Row("a", 1, "x", /*shard=*/3)}, {});
  const auto of_three = [](const OutboxRow& row) { return row.shard == 3; };
  EXPECT_FALSE(leased.AnyUnderWay(of_three)) << "it waits";
  const auto request = leased.Send({}, kShape, 16);
  EXPECT_TRUE(leased.AnyUnderWay(of_three));
  leased.Answered(request.value());
  EXPECT_FALSE(leased.AnyUnderWay(of_three));
}

}  // namespace
}  // namespace lockstep::publisher
