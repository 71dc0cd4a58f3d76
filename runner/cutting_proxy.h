#pragma once

#include <atomic>
#include <list>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep::runner {

// Stands between a runner and Postgres and cuts the connection at a COMMIT: before the server gets
// it, once it has been sent, or once the server has answered and nobody hears it.
class CuttingProxy {
 public:
  enum class Cut { kBeforeCommit, kDuringCommit, kAfterCommit };

  // `url`: of the database, over TCP.
  explicit CuttingProxy(const std::string& url);
  ~CuttingProxy();

  const std::string& url() const { return url_; }  // the same database, through here
  void CutNext(Cut where, int times);
  int cuts() const { return cuts_; }

 private:
  void Accept();
  void Relay(int client);
  // Whether the connection ends here.
  bool Forward(const std::string& bytes, int client, int server);

  std::string url_;
  int server_port_ = 0;
  int listener_ = -1;
  std::atomic<bool> stopping_{false};
  std::atomic<int> cuts_{0};

  std::mutex mu_;
  Cut where_ = Cut::kBeforeCommit;
  int left_ = 0;

  std::thread accepting_;
  std::list<std::thread> relays_;  // the accepting thread's
};

}  // namespace lockstep::runner
