#include "pubsub/google_cloud/library.h"

#include <cstdlib>

#include "google/cloud/common_options.h"
#include "google/cloud/grpc_options.h"
#include "google/cloud/pubsub/backoff_policy.h"
#include "google/cloud/pubsub/options.h"
#include "google/cloud/version.h"
#include "platform/log/log.h"
#include "pubsub/grpc/channel/status.h"

namespace lockstep::pubsub::google_cloud {
namespace {

namespace gc = ::google::cloud;

// The library's calls have no deadline; gRPC can be told one from outside. Without it a server that
// accepts and never answers would hold a message for ever.
constexpr char kServiceConfig[] = R"({"methodConfig": [
  {"name": [{"service": "google.pubsub.v1.Publisher", "method": "Publish"}], "timeout": "15s"},
  {"name": [{"service": "google.pubsub.v1.Subscriber", "method": "Acknowledge"},
            {"service": "google.pubsub.v1.Subscriber", "method": "ModifyAckDeadline"}],
   "timeout": "10s"}]})";

class Patient : public gc::pubsub::RetryPolicy {
 public:
  explicit Patient(Millis patience)
      : patience_(patience), end_(std::chrono::steady_clock::now() + patience) {}

  bool OnFailure(const gc::Status& status) override {
    return !IsPermanentFailure(status) && !IsExhausted();
  }
  bool IsExhausted() const override {
    return patience_ > Millis(0) && std::chrono::steady_clock::now() >= end_;
  }
  bool IsPermanentFailure(const gc::Status& status) const override {
    // Cancelled is what we do ourselves when we stop.
    return status.code() == gc::StatusCode::kCancelled ||
           !grpc_client::MayPass(static_cast<absl::StatusCode>(status.code()));
  }
  std::unique_ptr<gc::pubsub::RetryPolicy> clone() const override {
    return std::make_unique<Patient>(patience_);
  }

 private:
  const Millis patience_;
  const SteadyTime end_;
};

// As our own channel has it (grpc/channel.cc): the ids that an exactly-once subscription refuses
// come in the trailer, of a lease extension thousands at once.
grpc::ChannelArguments ChannelArguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, grpc_client::kMaxMetadataBytes);
  return arguments;
}

// The library reads the variable itself and follows it before what it is told: half of a program
// would talk to one server and half to another.
absl::Status CheckEnvironment(const TransportOptions& options) {
  const char* variable = std::getenv("PUBSUB_EMULATOR_HOST");
  if (variable == nullptr || *variable == '\0' || options.emulator_host == variable)
    return absl::OkStatus();
  return InvalidArgument(
      "PUBSUB_EMULATOR_HOST is '{}', which google-cloud-cpp follows whatever it is told, and "
      "pubsub.emulator_host is '{}': unset the variable, or let both name one server",
      variable, options.emulator_host);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Library>> OpenLibrary(const TransportOptions& options) {
  RETURN_IF_ERROR(CheckEnvironment(options));
  auto library = std::make_shared<Library>();
  ASSIGN_OR_RETURN(library->client, grpc_client::Connect(options));
  library->options.set<gc::EndpointOption>(library->client->address)
      .set<gc::GrpcCredentialOption>(library->client->credentials)
      .set<gc::GrpcNumChannelsOption>(options.channels)
      .set<gc::GrpcChannelArgumentsOption>({{"grpc.service_config", kServiceConfig}})
      .set<gc::GrpcChannelArgumentsNativeOption>(ChannelArguments())
      .set<gc::UserAgentProductsOption>({"lockstep"})
      .set<gc::pubsub::BackoffPolicyOption>(
          gc::pubsub::ExponentialBackoffPolicy(Millis(50), Millis(2'000), 2.0).clone());
  log::Info("Pub/Sub through google-cloud-cpp",
            {{"version", gc::version_string()}, {"server", library->client->address}});
  return library;
}

absl::Status FromCloud(const gc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.code()), status.message());
}

std::shared_ptr<gc::pubsub::RetryPolicy> PatientRetryPolicy(Millis patience) {
  return std::make_shared<Patient>(patience);
}

}  // namespace lockstep::pubsub::google_cloud
