#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "platform/clock.h"
#include "platform/daemon/service.h"
#include "platform/daemon/service_thread.h"
#include "platform/http_client/client.h"
#include "web/console/instance.h"

namespace lockstep::web {

// Asks every instance for its status, again and again: a GET each, which may take three seconds and
// two megabytes, a few at a time. One that hangs keeps nobody else from being asked. Safe from any
// thread.
class Poller final : public Service {
 public:
  static constexpr size_t kMostInstances = 200;

  explicit Poller(Millis every = Millis(2'000));
  ~Poller() override { Stop(); }

  // Whom to ask from now on; what is known of those that stay, stays. Beyond kMostInstances they
  // are left out.
  void Follow(const std::vector<Instance>& instances);

  std::vector<Asked> Look() const;
  size_t left_out() const { return left_out_; }

  absl::Status Start() override { return ticker_.Start(); }
  void Stop() override;

 private:
  struct Entry {
    Asked asked;
    bool under_way = false;
  };
  void Round();
  void Note(const Instance& instance, absl::StatusOr<http::Answer> answer);

  mutable std::mutex mu_;
  std::vector<Entry> entries_;
  std::atomic<size_t> left_out_ = 0;

  http::Client client_;  // its thread calls Note
  Ticker ticker_;        // last: its thread uses the rest
};

}  // namespace lockstep::web
