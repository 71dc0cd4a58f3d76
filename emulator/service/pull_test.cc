#include "emulator/service/pull.h"

#include <gtest/gtest.h>

#include "emulator/schema/schema_registry.h"

namespace lockstep::emulator {
namespace {

namespace pb = google::pubsub::v1;

TEST(Pull, DoesNothingOnceItsClientHasLeftAFrozenServer) {
  Timekeeper timekeeper(Clock::System());
  SchemaRegistry schemas(Clock::System());
  Broker broker(&timekeeper, &schemas);
  Faults faults;
  faults.Freeze();
  auto request = std::make_unique<pb::PullRequest>();
  auto response = std::make_unique<pb::PullResponse>();
  grpc::ServerUnaryReactor* pull =
      Pull::Begin(&broker, &faults, &timekeeper, request.get(), response.get());
  pull->OnCancel();
  pull->OnDone();
  // As gRPC does; a Pull that still goes on shows by the refusal that it takes.
  request.reset();
  response.reset();
  faults.RefuseNext("Pull", absl::UnavailableError("x"));
  faults.Thaw();
  EXPECT_FALSE(faults.CheckCall("Pull").ok());
}

}  // namespace
}  // namespace lockstep::emulator
