// The way to the service itself, as far as it can be tried without it: TLS against the trusted
// roots, application default credentials, an endpoint of one's own.
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>

#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "pubsub/transport.h"

namespace lockstep::pubsub {
namespace {

namespace pb = google::pubsub::v1;

// Answers GetTopic and remembers with which authorization it was asked.
class TopicServer : public pb::Publisher::Service {
 public:
  grpc::Status GetTopic(grpc::ServerContext* context, const pb::GetTopicRequest* request,
                        pb::Topic* response) override {
    const auto& metadata = context->client_metadata();
    const auto found = metadata.find("authorization");
    std::scoped_lock lock(mu_);
    authorization_ =
        found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
    response->set_name(request->topic());
    return grpc::Status::OK;
  }
  std::string authorization() {
    std::scoped_lock lock(mu_);
    return authorization_;
  }

 private:
  std::mutex mu_;
  std::string authorization_;
};

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(GrpcTransport, SpeaksTlsWithApplicationDefaultCredentialsToTheEndpointItIsGiven) {
  const std::filesystem::path directory =
      std::filesystem::path(::testing::TempDir()) / ("lockstep_tls_" + std::to_string(getpid()));
  std::filesystem::create_directories(directory);
  const auto certificate = directory / "certificate.pem";
  const auto key = directory / "key.pem";
  const std::string command =
      "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2 "
      "-addext subjectAltName=DNS:localhost -keyout '" +
      key.string() + "' -out '" + certificate.string() + "' 2>/dev/null";
  if (std::system(command.c_str()) != 0) GTEST_SKIP() << "SKIPPED: no openssl to make a key with";
  // A service account's file, as `gcloud iam service-accounts keys create` writes it.
  const auto account = directory / "account.json";
  std::ofstream(account) << nlohmann::json{{"type", "service_account"},
                                           {"private_key_id", "1"},
                                           {"private_key", Read(key)},
                                           {"client_id", "1"},
                                           {"client_email", "lockstep@test.example"}};
  setenv("GOOGLE_APPLICATION_CREDENTIALS", account.c_str(), 1);
  setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", certificate.c_str(), 1);

  TopicServer service;
  int port = 0;
  grpc::ServerBuilder builder;
  grpc::SslServerCredentialsOptions tls;
  tls.pem_key_cert_pairs.push_back({Read(key), Read(certificate)});
  builder.AddListeningPort("localhost:0", grpc::SslServerCredentials(tls), &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);

  TransportOptions options;
  options.endpoint = "localhost:" + std::to_string(port);
  const auto transport = MakeTransport(options);
  ASSERT_TRUE(transport.ok()) << transport.status();
  const auto topic = (*transport)->admin().GetTopic("projects/p/topics/events");
  EXPECT_TRUE(topic.ok()) << topic.status();
  EXPECT_EQ(service.authorization().rfind("Bearer ", 0), 0u) << service.authorization();
  server->Shutdown();
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace lockstep::pubsub
