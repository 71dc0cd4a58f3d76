#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "platform/http_client/answer.h"
#include "platform/http_client/settings.h"
#include "platform/http_client/url.h"

namespace lockstep::http {

struct Request {
  Url url;
  // "Name: value". REQUIRES: no line breaks.
  std::vector<std::string> headers = {};
  // The same, with secret values. What a refusal quotes of them, or of the URL's query, is taken
  // out of the answer.
  std::vector<std::string> secret_headers = {};
  // Shared, for it may be large and somebody else's; null = empty.
  std::shared_ptr<const std::string> body = nullptr;
  std::shared_ptr<const Settings> settings = nullptr;  // null = as they are by default
  bool get = false;                                    // GET, without a body
};

// Of an error that a Client answered: certainly nothing of the request has reached a server (its
// name, its connection, TLS).
bool WasNeverSent(const absl::Status& fault);

struct ClientOptions {
  int max_requests = 512;            // under way; others wait for their turn,
  int max_requests_per_origin = 64;  // and of one scheme, host and port
};

// POSTs, or GETs, by HTTP/1.1 over connections that are kept. TLS is verified always, redirects are
// not followed, cookies not kept. One thread of its own (libcurl's multi interface over epoll) does
// all; it begins with the client. Safe from any thread.
class Client {
 public:
  // On the client's thread, exactly once; must not block. May call Send. An error is a network
  // fault, in a sentence that begins with the origin: DEADLINE_EXCEEDED for a timeout,
  // PERMISSION_DENIED for an address that is not allowed, UNAVAILABLE for all others; CANCELLED at
  // the client's end.
  using Done = std::function<void(absl::StatusOr<Answer>)>;

  explicit Client(ClientOptions options = {});
  ~Client();  // as Stop
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Requests to one origin begin in the order of Send, but run side by side. After a Stop, `done`
  // is called at once, on the caller's thread, with CANCELLED.
  void Send(Request request, Done done);

  // From now on; requests under way go on.
  void SetLimits(ClientOptions options);

  // What is under way or waits ends CANCELLED; when it returns no Done is running, and none comes.
  // REQUIRES: not called by a Done.
  void Stop();

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace lockstep::http
