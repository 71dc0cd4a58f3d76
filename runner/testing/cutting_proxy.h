#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "tests/support/pg_relay.h"

namespace lockstep::runner {

// Stands between a runner and Postgres and cuts the connection at a COMMIT: before the server gets
// it, once it has been sent, or once the server has answered and nobody hears it.
class CuttingProxy {
 public:
  enum class Cut { kBeforeCommit, kDuringCommit, kAfterCommit };

  explicit CuttingProxy(const std::string& url);

  const std::string& url() const { return relay_.url(); }  // the same database, through here
  void CutNext(Cut where, int times);
  int cuts() const { return cuts_; }

 private:
  void Serve(int client);
  // Whether the connection goes on.
  bool Forward(const std::string& bytes, int client, int server);

  std::atomic<int> cuts_{0};

  std::mutex mu_;
  Cut where_ = Cut::kBeforeCommit;
  int left_ = 0;

  testing::PgRelay relay_;
};

}  // namespace lockstep::runner
