#include "publisher/dispatch/topic_style.h"

#include <gtest/gtest.h>

namespace lockstep::publisher {
namespace {

TEST(TopicStyle, AVersionedTopicNamesModuleAggregateEventAndVersion) {
  for (const char* good : {"catalog.video.changed.v1", "a.b-c.d.v12"}) {
    EXPECT_TRUE(IsVersionedTopic(good)) << good;
  }
  for (const char* bad :
       {"", "catalog.video.changed", "catalog.video.changed.v0", "video.changed.v1",
        "catalog.video.changed.v1.more", "Catalog.video.changed.v1", "catalog.video..v1",
        "catalog.video.changed.1"}) {
    EXPECT_FALSE(IsVersionedTopic(bad)) << bad;
  }
}

class Taking : public Dispatcher {
 public:
  void Dispatch(const std::string&, const std::string& topic, std::vector<RowPtr> rows,
                Done done) override {
    taken.push_back(topic);
    done(std::vector<DispatchResult>(rows.size()));
  }
  std::vector<std::string> taken;
};

TEST(TopicStyle, RowsOfATopicThatBreaksItNeverReachTheBus) {
  Taking bus;
  VersionedTopicsOnly styled(bus);
  std::vector<DispatchResult> results;
  const auto send = [&](const std::string& topic) {
    const std::vector<RowPtr> rows(3, std::make_shared<OutboxRow>());
    styled.Dispatch("shop.outbox", topic, rows, [&](auto answers) { results = answers; });
  };
  send("shop.item.changed.v1");
  ASSERT_EQ(results.size(), 3u);
  EXPECT_TRUE(results[0].status.ok());
  send("shop.events");
  ASSERT_EQ(results.size(), 3u);
  for (const auto& result : results) EXPECT_TRUE(absl::IsInvalidArgument(result.status));
  EXPECT_EQ(bus.taken, std::vector<std::string>{"shop.item.changed.v1"});
}

}  // namespace
}  // namespace lockstep::publisher
