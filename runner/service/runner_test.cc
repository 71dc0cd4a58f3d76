#include "runner/service/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "platform/config/config.h"
#include "platform/daemon/daemon.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "runner/service/runner_options.h"

namespace lockstep::runner {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Nothing : public projections::Projection {
 public:
  std::string Name() const override { return "nothing"; }
  bool Wants(const projections::Event&) const override { return false; }
};

class EmbeddedRunner : public ::testing::Test {
 protected:
  EmbeddedRunner() {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ + "/runner.yaml") << "groups: [orders.yaml]\n";
    std::ofstream(folder_ + "/orders.yaml") << "group: orders\nsubscription: shop.orders\n";
  }
  ~EmbeddedRunner() override { std::filesystem::remove_all(folder_); }

  absl::Status Open(const std::string& group) {
    Extensions own;
    own.projections["orders"] = own.projections[group] = {std::make_shared<Nothing>()};
    return Runner::Open(folder_ + "/runner.yaml", {{"database", "postgresql://nowhere/shop"}}, own)
        .status();
  }

  const std::string folder_ =
      ::testing::TempDir() + "/embedded_runner_" + std::to_string(::getpid());
};

TEST_F(EmbeddedRunner, MayHaveAGroupOfProjectionsInCodeAlone) {
  EXPECT_TRUE(Open("orders").ok()) << Open("orders");
}

TEST_F(EmbeddedRunner, RefusesProjectionsOfAGroupThatIsNotConfigured) {
  EXPECT_THAT(std::string(MessageOf(Open("order"))), HasSubstr("group 'order'"));
}

TEST_F(EmbeddedRunner, FindsAGroupByTheNameInItsFileWhateverTheRunnerCallsIt) {
  std::ofstream(folder_ + "/runner.yaml") << "groups: [{file: orders.yaml, name: orders-eu}]\n";
  EXPECT_TRUE(Open("orders").ok()) << Open("orders");
  EXPECT_THAT(std::string(MessageOf(Open("orders-eu"))), HasSubstr("group 'orders-eu'"));
}

// What a reload says of the files that the configuration names.
TEST_F(EmbeddedRunner, AReloadSaysThatAnotherMappingNeedsARestart) {
  const auto read = [&](const std::string& columns, const std::string& handler) {
    std::ofstream(folder_ + "/orders.yaml")
        << "group: orders\nsubscription: shop.orders\nprojections:\n  - {name: o, table: rm.o, "
           "key: id, version: v, events: {Ordered: {replace: {"
        << columns << "}}}}\nhandlers: [{name: h, call: shop.h, events: [" << handler << "]}]\n";
    RunnerOptions options;
    std::vector<ConfigKey> keys;
    const absl::Status done = Config::Read(
        {.file = folder_ + "/runner.yaml", .flags = {{"database", "postgresql://nowhere/shop"}}},
        [&](ConfigSection& section) { Bind(section, options); }, &keys);
    EXPECT_EQ(done, absl::OkStatus());
    return keys;
  };
  RunningConfig config{.keys = read("a: a", "Ordered")};
  const auto told = [&](const std::vector<ConfigKey>& fresh) {
    log::Configure({});
    ::testing::internal::CaptureStderr();
    config.Follow(fresh);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(told(read("a:   a", "Ordered")), HasSubstr("nothing changed"));
  EXPECT_THAT(told(read("a: a, b: b", "Ordered")),
              AllOf(HasSubstr("needs a restart\" key=groups.orders.projections"),
                    Not(HasSubstr("groups.orders.handlers"))));
  EXPECT_THAT(told(read("a: a", "Paid")),
              HasSubstr("needs a restart\" key=groups.orders.handlers"));
}

TEST_F(EmbeddedRunner, RefusesAGroupWithoutAnyProjection) {
  const absl::Status opened =
      Runner::Open(folder_ + "/runner.yaml", {{"database", "postgresql://nowhere/shop"}}).status();
  EXPECT_THAT(std::string(MessageOf(opened)), HasSubstr("'projections' is missing"));
}

}  // namespace
}  // namespace lockstep::runner
