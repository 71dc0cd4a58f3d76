#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::observability {

// The road from a process to its database: passes every byte on, counts the queries, and can hold
// them back, so that the database is there and never answers. Knows nothing of encryption. Two
// threads per session; the destructor ends them.
class Road {
 public:
  // `url`: postgresql://user@host:port/database.
  explicit Road(const std::string& url);
  ~Road();
  Road(const Road&) = delete;
  Road& operator=(const Road&) = delete;

  // The same database, over this road.
  const std::string& url() const { return url_; }

  // From now on queries and new sessions come as far as here; until Release.
  void Hold();
  void Release();

  // How often a client wanted something: each new session and each query, held or not.
  int64_t asked() const { return asked_; }

 private:
  void Accept();
  // A client's messages, one at a time: it can be held between any two.
  void Forward(int client, int server);
  void Return(int server, int client);
  bool PassesOn(int from, int to, bool typed);
  void AwaitRelease();

  std::string host_;
  int port_ = 0;
  std::string url_;
  int listener_ = -1;
  std::thread acceptor_;
  std::vector<std::thread> threads_;  // the acceptor's

  std::atomic<int64_t> asked_ = 0;

  std::mutex mu_;
  std::condition_variable released_;
  bool held_ = false;
  bool stop_ = false;
  std::vector<int> sockets_;
};

}  // namespace lockstep::observability
