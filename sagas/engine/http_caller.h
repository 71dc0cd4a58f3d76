#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "envelope/http/endpoint.h"
#include "platform/http_client/client.h"
#include "sagas/engine/attempt.h"
#include "sagas/engine/call.h"
#include "sagas/engine/options.h"

namespace lockstep::sagas {

// POSTs steps to their addresses. What an answer means is decided here. Safe from any thread;
// answers come on the client's. Its end drops what is under way: those calls are never answered.
class HttpCaller {
 public:
  explicit HttpCaller(HttpCallOptions options);

  // Reads files that the options name, and checks the rest.
  absl::Status Open();

  // Under way at once, to all hosts together.
  static int MostRequests(const HttpCallOptions& options) { return 8 * options.concurrency; }

  using Done = std::function<void(Outcome)>;  // goes unused at the client's end
  // A call that is ready to be sent; or why it can't be one. `url`: filled.
  absl::StatusOr<http::Request> Prepare(const StepCall& call, const Action& action,
                                        const std::string& url);
  void Send(http::Request request, Done done);
  void Stop() { client_.Stop(); }

  static Outcome OutcomeOf(const absl::StatusOr<http::Answer>& answer, const std::string& sent);

 private:
  absl::StatusOr<std::shared_ptr<envelope::Endpoint>> EndpointOf(const http::Url& url);

  const HttpCallOptions options_;
  std::mutex mu_;
  std::map<std::string, std::shared_ptr<envelope::Endpoint>> endpoints_;  // by origin
  http::Client client_;
};

}  // namespace lockstep::sagas
