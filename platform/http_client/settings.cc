#include "platform/http_client/settings.h"

#include "platform/config/config.h"
#include "platform/duration.h"
#include "platform/http_client/url.h"
#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::http {

void Bind(ConfigSection& config, Settings& settings) {
  config.Key("connect_timeout", &settings.connect_timeout,
             "longest time for name, connection and TLS");
  config.Key("timeout", &settings.timeout, "longest time for one request");
  config.Key("allow_private", &settings.allow_private,
             "addresses of this machine and of private networks may be reached");
  config.Key("ca_file", &settings.ca_file,
             "PEM file with the CAs that sign the server's certificate; empty = the system's");
  config.Key("proxy", &settings.proxy,
             "http://host:port to go through; empty = none, whatever the environment says");
}

absl::Status Validate(const Settings& settings) {
  constexpr Millis kLongest{600'000};
  for (const Millis time : {settings.connect_timeout, settings.timeout}) {
    if (time <= Millis(0) || time > kLongest) {
      return InvalidArgument("a timeout is {}; it must be above 0 and at most {}",
                             FormatDuration(time), FormatDuration(kLongest));
    }
  }
  if (!settings.ca_file.empty()) RETURN_IF_ERROR(ReadWholeFile(settings.ca_file).status());
  if (!settings.proxy.empty()) RETURN_IF_ERROR(ParseUrl(settings.proxy).status());
  return absl::OkStatus();
}

}  // namespace lockstep::http
