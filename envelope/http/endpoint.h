#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "envelope/attributes.h"
#include "envelope/http/endpoint_options.h"
#include "platform/http_client/client.h"
#include "platform/http_client/signer.h"
#include "platform/http_client/watched_file.h"

namespace lockstep::envelope {

// Where events are sent to by HTTP: makes an event a request. Its files are read again when they
// change. Safe from any thread.
class Endpoint {
 public:
  // Reads and checks the files. `clock` outlives it.
  static absl::StatusOr<std::unique_ptr<Endpoint>> Open(const std::string& url,
                                                        const EndpointOptions& options,
                                                        const Clock& clock = Clock::System());

  const http::Url& url() const { return url_; }

  // Fails with INVALID_ARGUMENT when the event can't be a request.
  absl::StatusOr<http::Request> RequestFor(const Attributes& attributes,
                                           std::shared_ptr<const std::string> body);

 private:
  using Lines = std::vector<std::string>;

  http::Url url_;
  std::shared_ptr<const http::Settings> settings_;
  HttpFormat format_ = HttpFormat::kPlain;
  std::string source_;
  std::unique_ptr<http::Signer> signer_;                    // or null
  std::unique_ptr<http::WatchedFile<Lines>> more_headers_;  // or null
};

}  // namespace lockstep::envelope
