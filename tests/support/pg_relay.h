#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::testing {

// Stands on a port of its own before a database; what becomes of a client is its owner's to say.
// The last member of its owner: its destructor ends every connection and waits for the threads.
class PgRelay {
 public:
  // On a thread of its own for every client; the relay closes the sockets.
  using Serve = std::function<void(int client)>;

  // `url`: postgresql://user@host:port/database, the host as a number.
  PgRelay(const std::string& url, Serve serve);
  ~PgRelay();
  PgRelay(const PgRelay&) = delete;
  PgRelay& operator=(const PgRelay&) = delete;

  const std::string& url() const { return url_; }  // the same database, through here

  // A connection to the database, which is the relay's to close; -1 = it can't be had.
  int Connect();
  // One more thread, for a client that needs two.
  void Spawn(std::function<void()> run);

 private:
  void Accept();
  // False once it is ending.
  bool Keep(int socket);

  const Serve serve_;
  std::string host_;
  int port_ = 0;
  std::string url_;
  int listener_ = -1;

  std::mutex mu_;
  bool stop_ = false;
  std::vector<int> sockets_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

// Of Postgres's protocol. Nothing = the other side is gone.
bool SendAll(int fd, const std::string& bytes);
std::string ReceiveSome(int fd);
// A message with its type; a client's first has none.
std::string ReceiveMessage(int fd, bool typed);
uint32_t NumberAt(const std::string& message, size_t offset);
// Ends both directions of both.
void Hang(int one, int other);

}  // namespace lockstep::testing
