#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::testing {

// A server on 127.0.0.1 that answers as a test says, with bytes that need not be HTTP. A thread per
// connection; its end closes all of them.
class HttpTestServer {
 public:
  struct Seen {
    std::string method;
    std::string path;
    std::map<std::string, std::string> headers;  // names in lower case; of two equal ones, the last
    std::string body;
    int connection = 0;  // from 1
  };
  // The bytes to answer with; a connection is kept unless they are empty or end in kClose.
  // kHang: no answer until the server's end.
  using Answer = std::function<std::string(const Seen&)>;
  static constexpr char kClose[] = "\x01 close";
  static constexpr char kHang[] = "\x01 hang";

  explicit HttpTestServer(Answer answer, bool ipv6 = false);
  ~HttpTestServer();
  HttpTestServer(const HttpTestServer&) = delete;
  HttpTestServer& operator=(const HttpTestServer&) = delete;

  int port() const { return port_; }
  std::string url(const std::string& path = "/") const;
  std::vector<Seen> seen() const;
  int most_at_once() const { return most_at_once_; }  // requests that were being answered

  // An ordinary answer.
  static std::string Ok(const std::string& body = "");
  static std::string Status(int status, const std::string& headers = "",
                            const std::string& body = "");

 private:
  void Accept();
  void Serve(int socket, int number);

  const Answer answer_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> at_once_ = 0;
  std::atomic<int> most_at_once_ = 0;
  mutable std::mutex mu_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::vector<Seen> seen_;
  std::vector<int> sockets_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace lockstep::testing
