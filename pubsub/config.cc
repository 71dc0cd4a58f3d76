#include "pubsub/config.h"

#include <cstdlib>
#include <string_view>

#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::pubsub {

namespace {

bool IsHostAndPort(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || address.find('/') != address.npos) {
    return false;
  }
  int port = 0;
  return ParseWhole(address.substr(colon + 1), &port) && port >= 1 && port <= 65535;
}

}  // namespace

absl::Status PubsubOptions::Validate() const {
  if (project.empty()) return InvalidArgument("pubsub.project is empty: name the Google project");
  if (transport.channels < 1 || transport.channels > 64) {
    return InvalidArgument("pubsub.channels is {}: it must be between 1 and 64",
                           transport.channels);
  }
  if (!transport.emulator_host.empty() && !IsHostAndPort(transport.emulator_host)) {
    return InvalidArgument(
        "pubsub.emulator_host (or PUBSUB_EMULATOR_HOST) is '{}': write host:port, such as "
        "127.0.0.1:8085",
        transport.emulator_host);
  }
  return CheckEmulator(*this, FindCredentials([](const char* name) { return std::getenv(name); }));
}

std::string FindCredentials(const Env& env, const std::string& product) {
  // Kubernetes alone is none: clusters of tests have emulators. A developer's own login is none
  // either: a laptop may have both.
  for (const char* const name :
       {"GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST", "GCE_METADATA_ROOT",
        "GCE_METADATA_IP", "K_SERVICE", "CLOUD_RUN_JOB"}) {
    const char* const value = env(name);
    if (value != nullptr && *value != '\0') return name;
  }
  const auto machine = ReadWholeFile(product);
  return machine.ok() && Trim(*machine).starts_with("Google") ? "a machine of Google Cloud" : "";
}

absl::Status CheckEmulator(const PubsubOptions& options, const std::string& credentials) {
  const TransportOptions& transport = options.transport;
  if (transport.emulator_host.empty() || options.force_emulator) return absl::OkStatus();
  std::string other;
  if (!credentials.empty()) {
    other = fmt::format("credentials for Cloud Pub/Sub ({})", credentials);
  } else if (!transport.endpoint.empty()) {
    other = "the endpoint " + transport.endpoint;
  }
  if (other.empty()) return absl::OkStatus();
  return InvalidArgument(
      "an emulator is named (pubsub.emulator_host or PUBSUB_EMULATOR_HOST: {}) beside {}; events "
      "could go where nobody expects them: take one of the two away, or set pubsub.force_emulator",
      transport.emulator_host, other);
}

void Bind(ConfigSection& config, PubsubOptions& options) {
  config.Key("project", &options.project, "Google project of topics and subscriptions");
  config.Key("force_emulator", &options.force_emulator,
             "use the emulator although credentials or an endpoint of the service are configured");
  TransportOptions& transport = options.transport;
  config.Choice(
      "transport", &transport.kind,
      {{"grpc", TransportKind::kGrpc}, {"google-cloud-cpp", TransportKind::kGoogleCloudCpp}},
      "client library");
  config.Key("emulator_host", &transport.emulator_host,
             "host:port of an emulator; empty = Cloud Pub/Sub", "PUBSUB_EMULATOR_HOST");
  config.Key("endpoint", &transport.endpoint,
             "regional endpoint, such as europe-west1-pubsub.googleapis.com:443; empty = global");
  config.Key("channels", &transport.channels, "connections to the server");
}

}  // namespace lockstep::pubsub
