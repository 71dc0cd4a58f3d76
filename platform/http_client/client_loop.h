#pragma once

#include <curl/curl.h>

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "platform/http_client/client.h"
#include "platform/http_client/transfer.h"

namespace lockstep::http {

// The thread of a Client: takes what was sent, lets libcurl work on the sockets that epoll names,
// and tells the answers. All below `mu_` is shared; the rest belongs to the thread.
class Client::Loop {
 public:
  explicit Loop(ClientOptions options);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void Send(Request request, Done done);
  void SetLimits(ClientOptions options);
  void Stop();

 private:
  struct Waiting {
    Request request;
    Done done;
  };
  struct Origin {
    int under_way = 0;
    std::deque<Waiting> waiting;
  };
  using Origins = std::map<std::string, Origin, std::less<>>;

  static int OnSocket(CURL* easy, curl_socket_t socket, int what, void* self, void* known);
  static int OnTimer(CURLM* multi, long timeout_ms, void* self);  // NOLINT(google-runtime-int)

  void Run();
  bool Take();  // false = to be stopped
  void Begin();
  bool BeginOne(Origins::iterator origin);
  void FireTimer();  // if it is due
  void WaitAndWork();
  bool Collect();  // tells what is over; false = nothing was
  void End(Transfer& transfer, absl::StatusOr<Answer> answer);
  void CancelAll();
  void Wake() const;

  CURLM* multi_;
  int epoll_ = -1;
  int wake_ = -1;
  std::optional<SteadyTime> timer_;
  std::list<Transfer> transfers_;  // all that were ever needed at once
  std::vector<Transfer*> idle_;
  Origins origins_;
  std::string last_;  // the origin that began last: they take turns
  int under_way_ = 0;
  int waiting_ = 0;
  ClientOptions limits_;
  const std::shared_ptr<const Settings> defaults_ = std::make_shared<Settings>();

  std::mutex mu_;
  std::vector<Waiting> sent_;
  std::optional<ClientOptions> new_limits_;
  bool stopped_ = false;

  std::mutex join_mu_;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace lockstep::http
