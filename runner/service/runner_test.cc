#include "runner/service/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "platform/status.h"

namespace lockstep::runner {
namespace {

using ::testing::HasSubstr;

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

TEST_F(EmbeddedRunner, RefusesAGroupWithoutAnyProjection) {
  const absl::Status opened =
      Runner::Open(folder_ + "/runner.yaml", {{"database", "postgresql://nowhere/shop"}}).status();
  EXPECT_THAT(std::string(MessageOf(opened)), HasSubstr("'projections' is missing"));
}

}  // namespace
}  // namespace lockstep::runner
