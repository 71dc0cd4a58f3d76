#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "platform/clock.h"

namespace lockstep {
class ConfigSection;
}

namespace lockstep::http {

// How a request is sent. Shared by the requests of one endpoint.
struct Settings {
  Millis connect_timeout{5'000};  // name, connection and TLS
  Millis timeout{30'000};         // the whole request, from when it is sent
  // Addresses of this machine and of private networks may be reached. Else they are refused when
  // the name has been resolved, whatever form they were written in.
  bool allow_private = false;
  std::string ca_file;  // PEM; empty = the system's
  // http://host:port; empty = none: the environment's are never used. The proxy resolves names, so
  // what is reached through it is for the proxy to restrict; only private addresses as such are
  // still refused.
  std::string proxy;
  // A connection of its own: over one that is kept, libcurl sends a request once more when the
  // server ended it without an answer. For what must not be done twice.
  bool fresh_connection = false;
  size_t read_body = 64 << 10;  // of an answer: then it is cut off, and counts as answered
  size_t keep_body = 4 << 10;   // of that, for whoever asked
};

// Their keys in a configuration.
void Bind(ConfigSection& config, Settings& settings);
absl::Status Validate(const Settings& settings);

}  // namespace lockstep::http
