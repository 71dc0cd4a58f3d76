#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "emulator/service/server.h"
#include "platform/status.h"
#include "pubsub/provision/plan.h"
#include "pubsub/transport.h"

namespace lockstep::pubsub {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ProvisionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(server_.Start().ok());
    TransportOptions options;
    options.emulator_host = server_.address();
    transport_ = *MakeTransport(options);
    wanted_.project = "test";
    wanted_.topics = {{.name = "catalog.events", .retention = Millis(3'600'000)}};
    wanted_.subscriptions = {{.name = "catalog.events.feed",
                              .topic = "catalog.events",
                              .ack_deadline = Millis(60'000),
                              .ordering = true,
                              .retain_acked = true}};
  }

  std::vector<std::string> Steps() {
    const auto plan = MakePlan(wanted_, transport_->admin());
    EXPECT_TRUE(plan.ok()) << plan.status();
    std::vector<std::string> steps;
    for (const Step& step : plan->steps) steps.push_back(step.action + " " + step.what);
    return steps;
  }

  void Apply() {
    const auto plan = MakePlan(wanted_, transport_->admin());
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (const Step& step : plan->steps) {
      const absl::Status done = step.run(transport_->admin());
      ASSERT_TRUE(done.ok()) << step.what << ": " << done;
    }
  }

  emulator::Server server_{{}};
  std::unique_ptr<Transport> transport_;
  Wanted wanted_;
};

TEST_F(ProvisionTest, MakesWhatIsMissingAndNothingTwice) {
  EXPECT_THAT(Steps(), ElementsAre("create topic catalog.events",
                                   "create subscription catalog.events.feed"));
  Apply();
  EXPECT_THAT(Steps(), IsEmpty());
  const auto made =
      transport_->admin().GetSubscription("projects/test/subscriptions/catalog.events.feed");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(made->ordering);
  EXPECT_TRUE(made->retain_acked);
  EXPECT_EQ(made->ack_deadline, Millis(60'000));
}

TEST_F(ProvisionTest, ChangesWhatCanBeChanged) {
  Apply();
  wanted_.topics[0].retention = Millis(7'200'000);
  wanted_.subscriptions[0].ack_deadline = Millis(30'000);
  EXPECT_THAT(Steps(), ElementsAre("update topic catalog.events",
                                   "update subscription catalog.events.feed"));
  Apply();
  EXPECT_THAT(Steps(), IsEmpty());
}

// After `rebuild finish` the group reads its slot's, and its files go on naming the first.
TEST_F(ProvisionTest, DoesNotMakeASubscriptionAgainThatARebuildHasReplaced) {
  Apply();
  Admin& admin = transport_->admin();
  const std::string first = "projects/test/subscriptions/catalog.events.feed";
  auto slot = *admin.GetSubscription(first);
  slot.name = first + ".slot2";
  ASSERT_TRUE(admin.CreateSubscription(slot).ok());
  EXPECT_THAT(Steps(), IsEmpty()) << "both are there until the rebuild is finished";
  ASSERT_TRUE(admin.DeleteSubscription(first).ok());
  EXPECT_THAT(Steps(), IsEmpty());
  wanted_.subscriptions[0].ack_deadline = Millis(30'000);
  EXPECT_THAT(Steps(), ElementsAre("update subscription catalog.events.feed.slot2"));
  ASSERT_TRUE(admin.DeleteSubscription(slot.name).ok());
  EXPECT_THAT(Steps(), ElementsAre("create subscription catalog.events.feed"));
}

TEST_F(ProvisionTest, RefusesWhatCanNotBeChanged) {
  Apply();
  wanted_.subscriptions[0].ordering = false;
  const auto plan = MakePlan(wanted_, transport_->admin());
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(std::string(MessageOf(plan.status())), HasSubstr("can't be changed"));
}

TEST_F(ProvisionTest, WarnsAboutNamesOutsideTheConvention) {
  wanted_.topics[0].name = "videos";
  wanted_.subscriptions[0] = {.name = "feed", .topic = "videos", .ordering = true};
  const auto plan = MakePlan(wanted_, transport_->admin());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->warnings,
              ElementsAre(HasSubstr("<context>.events"), HasSubstr("videos.<service>")));
}

TEST_F(ProvisionTest, MakesSchemasBeforeTheTopicsThatUseThem) {
  if (transport_->admin().GetSchema("projects/test/schemas/x").status().code() ==
      absl::StatusCode::kUnimplemented) {
    GTEST_SKIP() << "this server has no schemas";
  }
  const std::string file =
      ::testing::TempDir() + "/lockstep_schema." + std::to_string(getpid()) + ".proto";
  std::ofstream(file) << "syntax = \"proto3\"; message Note { string text = 1; }";
  wanted_.schemas = {{"note", file}};
  wanted_.topics[0].schema.schema = "note";
  EXPECT_THAT(Steps(), ElementsAre("create schema note", "create topic catalog.events",
                                   "create subscription catalog.events.feed"));
  Apply();
  EXPECT_THAT(Steps(), IsEmpty());
  std::filesystem::remove(file);
}

TEST(IamCommands, GiveTheLeastRights) {
  const Wanted wanted{.project = "p",
                      .topics = {{.name = "a.events"}},
                      .subscriptions = {{.name = "a.events.s", .topic = "a.events"}}};
  EXPECT_THAT(IamCommands(wanted), ElementsAre(HasSubstr("roles/pubsub.publisher"),
                                               HasSubstr("roles/pubsub.subscriber")));
}

}  // namespace
}  // namespace lockstep::pubsub
