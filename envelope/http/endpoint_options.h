#pragma once

#include <string>

#include "platform/http_client/settings.h"

namespace lockstep {
class ConfigSection;
}

namespace lockstep::envelope {

// How an event looks as an HTTP request (docs/routes.md).
enum class HttpFormat {
  kPlain,        // attributes as Lockstep-* headers
  kCloudEvents,  // CloudEvents 1.0, binary mode: ce-* headers
};

struct EndpointOptions {
  http::Settings settings;
  HttpFormat format = HttpFormat::kPlain;
  std::string source;       // of CloudEvents; empty = /<topic>
  std::string secret_file;  // signs: http::Signer; empty = no signature
  std::string
      headers_file;  // lines of "Name: value" that go with every request, such as Authorization
};
// The keys of an endpoint in a configuration, but for its URL; files are relative to the
// configuration's.
void Bind(ConfigSection& config, EndpointOptions& options);

}  // namespace lockstep::envelope
