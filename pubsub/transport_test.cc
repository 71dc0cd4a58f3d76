#include "pubsub/transport.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "platform/status.h"
#include "pubsub/config.h"

namespace lockstep::pubsub {
namespace {

TransportOptions OnAnEmulator(TransportKind kind) {
  TransportOptions options;
  options.kind = kind;
  options.emulator_host = "127.0.0.1:1";  // nothing connects before it is used
  return options;
}

TEST(Transport, MakesTheDefaultOne) {
  EXPECT_TRUE(MakeTransport(OnAnEmulator(TransportKind::kGrpc)).ok());
}

#ifdef LOCKSTEP_WITH_GOOGLE_CLOUD
TEST(Transport, MakesTheOneOnGoogleCloudCppInABuildThatHasIt) {
  EXPECT_TRUE(MakeTransport(OnAnEmulator(TransportKind::kGoogleCloudCpp)).ok());
}

// It reads the variable itself, and would follow it and not us.
TEST(Transport, OnGoogleCloudCppRefusesAnEnvironmentThatNamesAnotherServer) {
  const TransportOptions options = OnAnEmulator(TransportKind::kGoogleCloudCpp);
  ASSERT_EQ(setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:2", 1), 0);
  const absl::Status refused = MakeTransport(options).status();
  ASSERT_EQ(setenv("PUBSUB_EMULATOR_HOST", options.emulator_host.c_str(), 1), 0);
  const absl::Status same = MakeTransport(options).status();
  ASSERT_EQ(unsetenv("PUBSUB_EMULATOR_HOST"), 0);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(MessageOf(refused).find("127.0.0.1:1"), std::string_view::npos) << refused;
  EXPECT_NE(MessageOf(refused).find("127.0.0.1:2"), std::string_view::npos) << refused;
  EXPECT_TRUE(same.ok()) << same;
}
#else
TEST(Transport, RefusesGoogleCloudCppInABuildWithoutIt) {
  const auto transport = MakeTransport(OnAnEmulator(TransportKind::kGoogleCloudCpp));
  EXPECT_EQ(transport.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string_view sentence = MessageOf(transport.status());
  EXPECT_NE(sentence.find("google-cloud-cpp, and this build has none"), std::string_view::npos)
      << sentence;
  EXPECT_NE(sentence.find("CMAKE_PREFIX_PATH"), std::string_view::npos) << "what to do next";
}
#endif

TEST(PubsubConfig, WantsAnEmulatorAsHostAndPort) {
  PubsubOptions options;
  options.force_emulator = true;  // whatever machine this is
  for (const char* good : {"", "127.0.0.1:8085", "[::1]:8085", "pubsub.test:65535"}) {
    options.transport.emulator_host = good;
    EXPECT_TRUE(options.Validate().ok()) << good;
  }
  for (const char* bad : {"localhost", ":8085", "localhost:", "localhost:0", "localhost:65536",
                          "localhost:80a", "http://localhost:8085", "localhost:8085/"}) {
    options.transport.emulator_host = bad;
    const absl::Status refused = options.Validate();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_NE(MessageOf(refused).find("write host:port"), std::string_view::npos) << refused;
  }
}

TEST(PubsubConfig, RefusesAnEmulatorWhereCredentialsOfTheServiceAreConfigured) {
  PubsubOptions options;
  options.transport = OnAnEmulator(TransportKind::kGrpc);
  EXPECT_TRUE(CheckEmulator(options, "").ok());
  const absl::Status refused = CheckEmulator(options, "GCE_METADATA_HOST");
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(MessageOf(refused).find("127.0.0.1:1"), std::string_view::npos) << refused;
  EXPECT_NE(MessageOf(refused).find("force_emulator"), std::string_view::npos) << refused;
  EXPECT_NE(MessageOf(refused).find("GCE_METADATA_HOST"), std::string_view::npos) << refused;
  options.transport.endpoint = "europe-west1-pubsub.googleapis.com:443";
  EXPECT_FALSE(CheckEmulator(options, "").ok()) << "it names the service as well";
  options.force_emulator = true;
  EXPECT_TRUE(CheckEmulator(options, "GCE_METADATA_HOST").ok());
  options = {};
  EXPECT_TRUE(CheckEmulator(options, "GCE_METADATA_HOST").ok()) << "no emulator at all";
}

// Workload Identity and Cloud Run have no file of credentials: a server hands them out.
TEST(PubsubConfig, KnowsWhereAMetadataServerGivesCredentials) {
  const std::string product = ::testing::TempDir() + "lockstep_product_name";
  const auto machine = [&](const char* name) { std::ofstream(product) << name << "\n"; };
  const auto with = [](const std::map<std::string, const char*>& set) -> Env {
    return [set](const char* name) {
      const auto found = set.find(name);
      return found == set.end() ? nullptr : found->second;
    };
  };
  machine("Standard PC (Q35 + ICH9, 2009)");
  EXPECT_EQ(FindCredentials(with({}), product), "");
  EXPECT_EQ(FindCredentials(with({}), product + ".none"), "");
  EXPECT_EQ(
      FindCredentials(with({{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}, {"K_SERVICE", ""}}), product),
      "");
  for (const char* name : {"GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST", "K_SERVICE"}) {
    EXPECT_EQ(FindCredentials(with({{name, "/etc/key.json"}}), product), name);
  }
  machine("Google Compute Engine");
  EXPECT_EQ(FindCredentials(with({}), product), "a machine of Google Cloud");
}

}  // namespace
}  // namespace lockstep::pubsub
