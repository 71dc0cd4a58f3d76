#pragma once

#include <curl/curl.h>

#include <array>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "platform/http_client/client.h"

namespace lockstep::http {

// One request at a time, with the libcurl handle that it uses again and again. Owned by the
// client's thread; stays where it is, for libcurl points to it.
class Transfer {
 public:
  Transfer();
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  static Transfer& Of(CURL* easy);

  // REQUIRES: not under way. An error: it can't be sent, and is over.
  absl::Status Prepare(Request request, Client::Done done);
  CURL* easy() const { return easy_; }
  const std::string& origin() const { return request_.url.origin; }

  // What came of it, once libcurl has said that it is over.
  absl::StatusOr<Answer> Result(CURLcode code);
  // Lets go of request and answer; the handle is kept.
  Client::Done Finish();

 private:
  static size_t OnHeader(char* bytes, size_t size, size_t count, void* self);
  static size_t OnBody(char* bytes, size_t size, size_t count, void* self);
  static curl_socket_t OpenSocket(void* self, curlsocktype purpose, curl_sockaddr* address);
  static int BeforeRequest(void* self, char* address, char* own, int port, int own_port);

  bool checks_addresses() const {
    return !configured_->allow_private && configured_->proxy.empty();
  }
  void Configure(const Settings& settings);
  void TakeSecretsOut(std::string& body) const;
  absl::Status Refused(const std::string& address) const;
  absl::Status Fault(CURLcode code) const;

  CURL* easy_;
  char* ca_info_ = nullptr;  // the system's, as libcurl was built for it
  char* ca_path_ = nullptr;
  curl_slist* headers_ = nullptr;
  std::array<char, CURL_ERROR_SIZE> error_{};
  std::shared_ptr<const Settings> configured_;  // what the handle was told last

  Request request_;
  Client::Done done_;
  Answer answer_;
  size_t header_bytes_ = 0;
  size_t body_bytes_ = 0;
  bool cut_ = false;     // the answer is longer than is read
  std::string refused_;  // an address that must not be reached
};

}  // namespace lockstep::http
