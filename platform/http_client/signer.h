#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "platform/http_client/watched_file.h"

namespace lockstep::http {

// HMAC-SHA256 over `<seconds>.<id>.<body>`, in hex.
std::string Hmac(std::string_view secret, int64_t seconds, std::string_view id,
                 std::string_view body);

// Signs requests, so that a receiver knows from whom they are, and when they were made:
//
//   Lockstep-Signature: t=1767225600,v1=5f2a…[,v1=…]
//
// The secrets stand in a file, one a line, the newest first; blank lines and those that begin with
// # don't count. Every one signs: a receiver that knows any of them is content, so a new secret is
// put in front, given to the receivers, and the old one taken away. The file is read again when it
// changes. Safe from any thread.
class Signer {
 public:
  static constexpr size_t kShortestSecret = 16;
  static constexpr size_t kMostSecrets = 4;

  static absl::StatusOr<std::unique_ptr<Signer>> Open(const std::string& secret_file,
                                                      const Clock& clock = Clock::System());

  // The header, with its name.
  std::string Header(std::string_view id, std::string_view body);

 private:
  using Secrets = std::vector<std::string>;

  Signer(std::unique_ptr<WatchedFile<Secrets>> secrets, const Clock& clock)
      : secrets_(std::move(secrets)), clock_(clock) {}

  const std::unique_ptr<WatchedFile<Secrets>> secrets_;
  const Clock& clock_;
};

}  // namespace lockstep::http
