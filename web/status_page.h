#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>

#include "platform/clock.h"
#include "platform/daemon/http_server.h"
#include "platform/daemon/service.h"
#include "platform/daemon/service_thread.h"

namespace lockstep::web {

// The read-only page at `/` and the JSON beside it (docs/api.md): /api/status, /api/lag,
// /api/offsets, /api/offsets/export, /api/dead-letters.
//
// `snapshot` answers the document that web/README.md describes. It is called on this object's own
// thread, once a second, and must not wait for a database: requests read what the last call left.
class StatusPage final : public Service {
 public:
  using Snapshot = std::function<nlohmann::json()>;

  // REQUIRES: `http` is not started yet; it must be stopped before this object is destroyed.
  StatusPage(HttpServer& http, Snapshot snapshot, Millis every = Millis(1'000));

  absl::Status Start() override { return ticker_.Start(); }
  void Stop() override { ticker_.Stop(); }

  // Whether somebody has asked for the page or its JSON lately: what only a reader needs can wait
  // for one. Probes and scrapes, which never end, are none. From any thread.
  bool AskedWithin(Millis time) const;

  // One round, now. On the page's thread, or on a test's while it is not started.
  void Refresh();

 private:
  struct Answers;
  std::shared_ptr<const Answers> Current() const;

  const Snapshot snapshot_;
  std::atomic<SteadyTime> last_request_{SteadyTime{}};  // the clock's epoch = never

  mutable std::mutex mu_;
  std::shared_ptr<const Answers> answers_;  // shared with the requests that are reading it

  Ticker ticker_;  // last: its thread uses the rest
};

}  // namespace lockstep::web
