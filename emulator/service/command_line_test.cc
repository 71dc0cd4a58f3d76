// lockstep-emulator as a program: where it listens, and fault injection by its flags.
#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "emulator/testing/wire_fixture.h"
#include "tests/support/process.h"
#include "tests/support/service_stress.h"

namespace lockstep::emulator {
namespace {

using grpc::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CommandLine : public WireTest {
 protected:
  void SetUp() override {}  // the server is a process: Run

  void Run(std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"--host", "127.0.0.1", "--port", "0"});
    process_ = std::make_unique<testing::Process>("lockstep-emulator", flags);
    const std::string before = "listening on ";
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    std::string said;
    while (said.find('\n') == std::string::npos) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << said;
      std::this_thread::yield();
      said = process_->Errors();
    }
    ASSERT_EQ(said.rfind(before, 0), 0u) << said;
    Connect(said.substr(before.size(), said.find('\n') - before.size()));
  }
  void RunWithSubscription(const std::vector<std::string>& flags) {
    Run(flags);
    ASSERT_TRUE(CreateTopic().ok());
    ASSERT_TRUE(CreateSubscription().ok());
  }
  StatusCode CodeOfPublish() {
    pb::PublishRequest request;
    request.set_topic(kTopic);
    request.add_messages()->set_data("x");
    return TryPublish(request).error_code();
  }

  std::unique_ptr<testing::Process> process_;
};

TEST(Server, HasTheLifeOfAService) {
  testing::StressService([] { return std::make_unique<Server>(); }, nullptr, 3);
}

TEST_F(CommandLine, ServesUntilItIsTold) {
  RunWithSubscription({});
  Publish("a");
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("a"));
  process_->Signal(SIGTERM);
  EXPECT_EQ(process_->Wait(), 0);
}

TEST_F(CommandLine, RefusesCalls) {
  RunWithSubscription({"--fault-refuse", "1", "--fault-refuse-status", "PERMISSION_DENIED",
                       "--fault-refuse-method", "Publish"});
  EXPECT_EQ(CodeOfPublish(), StatusCode::PERMISSION_DENIED);
}

TEST_F(CommandLine, ASeedDecidesWhatGoesWrong) {
  const auto codes = [this](const std::string& seed) {
    RunWithSubscription(
        {"--fault-refuse", "0.5", "--fault-refuse-method", "Publish", "--fault-seed", seed});
    std::vector<StatusCode> all;
    for (int i = 0; i < 40; ++i) all.push_back(CodeOfPublish());
    return all;
  };
  const auto first = codes("7");
  EXPECT_THAT(first, ::testing::Contains(StatusCode::OK));
  EXPECT_THAT(first, ::testing::Contains(StatusCode::UNAVAILABLE));
  EXPECT_EQ(codes("7"), first);
  EXPECT_NE(codes("8"), first);
}

TEST_F(CommandLine, DropsAcks) {
  RunWithSubscription({"--fault-drop-acks", "1"});
  Publish("a");
  const auto ids = AckIdsOf(PullNow());
  EXPECT_TRUE(Acknowledge(ids).ok());
  EXPECT_TRUE(ModifyAckDeadline(ids, 0).ok());
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("a"));  // it was not acked
}

TEST_F(CommandLine, DelaysAcks) {
  RunWithSubscription({"--fault-delay-acks", "1", "--fault-ack-delay", "1h"});
  Publish("a");
  const auto ids = AckIdsOf(PullNow());
  EXPECT_TRUE(Acknowledge(ids).ok());
  EXPECT_TRUE(ModifyAckDeadline(ids, 0).ok());
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("a"));  // not yet

  RunWithSubscription({"--fault-delay-acks", "1", "--fault-ack-delay", "10ms"});
  Publish("b");
  const auto soon = AckIdsOf(PullNow());
  EXPECT_TRUE(Acknowledge(soon).ok());
  // Given back until there is nothing to give back: then the ack has come.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  auto left = soon;
  while (!left.empty() && std::chrono::steady_clock::now() < deadline) {
    EXPECT_TRUE(ModifyAckDeadline(left, 0).ok());
    left = AckIdsOf(PullNow());
  }
  EXPECT_THAT(left, IsEmpty());
}

TEST_F(CommandLine, ClosesStreams) {
  RunWithSubscription({"--fault-close-streams", "1"});
  Publish("a");
  auto stream = Open();
  stream->Read(1);
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::UNAVAILABLE);
}

TEST_F(CommandLine, DuplicatesDeliveries) {
  RunWithSubscription({"--fault-duplicate", "1"});
  Publish("a");
  EXPECT_THAT(DataOf(Open()->Read(2)), ElementsAre("a", "a"));
}

TEST_F(CommandLine, IgnoresFlowControl) {
  RunWithSubscription({"--fault-ignore-flow-control", "true"});
  for (int i = 0; i < 5; ++i) Publish("a");
  auto stream = Open(kSubscription, [](auto* first) { first->set_max_outstanding_messages(1); });
  EXPECT_THAT(stream->Read(5), SizeIs(5));
}

TEST_F(CommandLine, Freezes) {
  Run({"--fault-freeze", "true"});
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
  pb::Topic topic;
  topic.set_name(kTopic);
  pb::Topic response;
  EXPECT_EQ(publisher_->CreateTopic(&context, topic, &response).error_code(),
            StatusCode::DEADLINE_EXCEEDED);
  process_->Signal(SIGTERM);
  EXPECT_EQ(process_->Wait(), 0);
}

TEST_F(CommandLine, FollowsItsFileWhenToldTo) {
  const std::string file = ::testing::TempDir() + "/emulator_faults.yaml";
  const auto follow = [&](const std::string& text, StatusCode code) {
    std::ofstream(file) << text;
    process_->Signal(SIGHUP);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (CodeOfPublish() != code && std::chrono::steady_clock::now() < deadline) {
    }
    EXPECT_EQ(CodeOfPublish(), code) << text;
  };
  std::ofstream(file) << "fault-refuse: 0\n";
  RunWithSubscription({"--config", file});
  for (const auto& [name, code] : {std::pair{"UNKNOWN", StatusCode::UNKNOWN},
                                   {"UNIMPLEMENTED", StatusCode::UNIMPLEMENTED},
                                   {"INTERNAL", StatusCode::INTERNAL}}) {
    follow(std::string("fault-refuse: 1\nfault-refuse-method: Publish\nfault-refuse-status: ") +
               name + "\n",
           code);
  }
  follow("fault-refuse: 0\n", StatusCode::OK);
}

TEST_F(CommandLine, RefusesFlagsThatMakeNoSense) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--fault-drop-acks", "2"}, "between 0 and 1"},
      {{"--fault-refuse-status", "SAD"}, "UNAVAILABLE"},
      {{"--fault-drop-ack", "1"}, "fault-drop-acks"},
  };
  for (const auto& [flags, sentence] : cases) {
    testing::Process process("lockstep-emulator", flags);
    EXPECT_NE(process.Wait(), 0) << sentence;
    EXPECT_THAT(process.Errors(), HasSubstr(sentence));
  }
}

}  // namespace
}  // namespace lockstep::emulator
