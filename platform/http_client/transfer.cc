#include "platform/http_client/transfer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <new>
#include <utility>

#include "absl/strings/cord.h"
#include "platform/duration.h"
#include "platform/http_client/address.h"
#include "platform/printable.h"
#include "platform/status.h"
#include "platform/text.h"
#include "platform/version.h"

namespace lockstep::http {
namespace {

constexpr size_t kMostHeaderBytes = 64 << 10;
// A CA bundle is parsed once in so long; one that changes is followed.
constexpr long kCaCacheSeconds = 300;  // NOLINT(google-runtime-int): libcurl's type

template <typename Value>
void Set(CURL* easy, CURLoption option, Value value) {
  curl_easy_setopt(easy, option, value);
}

// Whether a text that stands for a host is an address that must not be reached.
bool IsPrivateLiteral(const std::string& host) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  // inet_aton knows the forms that resolvers know: 0x7f.1, 2130706433, 0177.0.0.1.
  if (inet_aton(host.c_str(), &in.sin_addr) != 0) {
    return !IsPublicAddress(reinterpret_cast<const sockaddr&>(in));
  }
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  const std::string bare = host.substr(0, host.find('%'));
  return inet_pton(AF_INET6, bare.c_str(), &in6.sin6_addr) == 1 &&
         !IsPublicAddress(reinterpret_cast<const sockaddr&>(in6));
}

constexpr char kNeverSentUrl[] = "lockstep/never-sent";

absl::Status NeverSent(absl::Status fault) {
  fault.SetPayload(kNeverSentUrl, absl::Cord());
  return fault;
}

}  // namespace

bool WasNeverSent(const absl::Status& fault) { return fault.GetPayload(kNeverSentUrl).has_value(); }

Transfer::Transfer() : easy_(curl_easy_init()) {
  if (easy_ == nullptr) throw std::bad_alloc();
  curl_easy_getinfo(easy_, CURLINFO_CAINFO, &ca_info_);
  curl_easy_getinfo(easy_, CURLINFO_CAPATH, &ca_path_);
  Set(easy_, CURLOPT_PRIVATE, this);
  Set(easy_, CURLOPT_NOSIGNAL, 1L);
  // A name server that hangs must not hold the one thread of all transfers when this one ends.
  Set(easy_, CURLOPT_QUICK_EXIT, 1L);
  Set(easy_, CURLOPT_ERRORBUFFER, error_.data());
  Set(easy_, CURLOPT_PROTOCOLS_STR, "http,https");
  Set(easy_, CURLOPT_FOLLOWLOCATION, 0L);
  Set(easy_, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  Set(easy_, CURLOPT_USERAGENT, "lockstep");
  Set(easy_, CURLOPT_TCP_KEEPALIVE, 1L);
  Set(easy_, CURLOPT_SSL_VERIFYPEER, 1L);
  Set(easy_, CURLOPT_SSL_VERIFYHOST, 2L);
  Set(easy_, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  Set(easy_, CURLOPT_CA_CACHE_TIMEOUT, kCaCacheSeconds);
  Set(easy_, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  Set(easy_, CURLOPT_HTTP09_ALLOWED, 0L);
  Set(easy_, CURLOPT_HEADERFUNCTION, &Transfer::OnHeader);
  Set(easy_, CURLOPT_HEADERDATA, this);
  Set(easy_, CURLOPT_WRITEFUNCTION, &Transfer::OnBody);
  Set(easy_, CURLOPT_WRITEDATA, this);
  Set(easy_, CURLOPT_OPENSOCKETFUNCTION, &Transfer::OpenSocket);
  Set(easy_, CURLOPT_OPENSOCKETDATA, this);
  Set(easy_, CURLOPT_PREREQFUNCTION, &Transfer::BeforeRequest);
  Set(easy_, CURLOPT_PREREQDATA, this);
}

Transfer::~Transfer() {
  curl_easy_cleanup(easy_);
  curl_slist_free_all(headers_);
}

Transfer& Transfer::Of(CURL* easy) {
  char* self = nullptr;
  curl_easy_getinfo(easy, CURLINFO_PRIVATE, &self);
  return *reinterpret_cast<Transfer*>(self);
}

void Transfer::Configure(const Settings& settings) {
  using Milliseconds = long;  // NOLINT(google-runtime-int): libcurl's type
  Set(easy_, CURLOPT_CONNECTTIMEOUT_MS,
      static_cast<Milliseconds>(settings.connect_timeout.count()));
  Set(easy_, CURLOPT_TIMEOUT_MS, static_cast<Milliseconds>(settings.timeout.count()));
  // Without a name libcurl would ask the environment for one.
  Set(easy_, CURLOPT_PROXY, settings.proxy.c_str());
  Set(easy_, CURLOPT_NOPROXY, "");
  Set(easy_, CURLOPT_FRESH_CONNECT, settings.fresh_connection ? 1L : 0L);
  const bool system = settings.ca_file.empty();
  Set(easy_, CURLOPT_CAINFO, system ? ca_info_ : settings.ca_file.c_str());
  Set(easy_, CURLOPT_CAPATH, system ? ca_path_ : nullptr);
}

absl::Status Transfer::Prepare(Request request, Client::Done done) {
  const bool another_url = request.url.text != request_.url.text;
  request_ = std::move(request);
  done_ = std::move(done);
  answer_ = {};
  header_bytes_ = 0;
  body_bytes_ = 0;
  cut_ = false;
  refused_.clear();
  error_[0] = '\0';
  if (configured_ != request_.settings) {
    configured_ = request_.settings;
    Configure(*configured_);
  }
  if (another_url) Set(easy_, CURLOPT_URL, request_.url.text.c_str());
  if (!configured_->allow_private && IsPrivateLiteral(request_.url.host)) {
    return Refused(request_.url.host);  // a proxy would reach it by a socket of its own
  }
  curl_slist_free_all(std::exchange(headers_, nullptr));
  headers_ = curl_slist_append(nullptr, "Expect:");  // no round trip before large bodies
  for (const auto& some : {std::cref(request_.headers), std::cref(request_.secret_headers)}) {
    for (const std::string& header : some.get()) {
      headers_ = curl_slist_append(headers_, header.c_str());
    }
  }
  Set(easy_, CURLOPT_HTTPHEADER, headers_);
  if (request_.get) {
    Set(easy_, CURLOPT_HTTPGET, 1L);
    return absl::OkStatus();
  }
  Set(easy_, CURLOPT_POST, 1L);  // the handle may have been another request's
  const std::string* const body = request_.body.get();
  Set(easy_, CURLOPT_POSTFIELDSIZE_LARGE,
      static_cast<curl_off_t>(body == nullptr ? 0 : body->size()));
  Set(easy_, CURLOPT_POSTFIELDS, body == nullptr ? "" : body->data());
  return absl::OkStatus();
}

size_t Transfer::OnHeader(char* bytes, size_t size, size_t count, void* self) {
  Transfer& transfer = *static_cast<Transfer*>(self);
  const std::string_view line(bytes, size * count);
  transfer.header_bytes_ += line.size();
  if (transfer.header_bytes_ > kMostHeaderBytes) return 0;
  constexpr std::string_view kRetryAfter = "retry-after:";
  if (line.starts_with("HTTP/")) {
    transfer.answer_.retry_after.reset();  // one of an interim answer
  } else if (line.size() > kRetryAfter.size() &&
             std::ranges::equal(
                 line.substr(0, kRetryAfter.size()), kRetryAfter,
                 [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; })) {
    transfer.answer_.retry_after =
        ParseRetryAfter(line.substr(kRetryAfter.size()), std::chrono::system_clock::now());
  }
  return size * count;
}

size_t Transfer::OnBody(char* bytes, size_t size, size_t count, void* self) {
  Transfer& transfer = *static_cast<Transfer*>(self);
  const Settings& settings = *transfer.configured_;
  const std::string_view part(bytes, size * count);
  std::string& body = transfer.answer_.body;
  body += part.substr(0, settings.keep_body - std::min(settings.keep_body, body.size()));
  transfer.body_bytes_ += part.size();
  transfer.cut_ = transfer.body_bytes_ > settings.read_body;
  return transfer.cut_ ? 0 : part.size();
}

curl_socket_t Transfer::OpenSocket(void* self, curlsocktype, curl_sockaddr* address) {
  Transfer& transfer = *static_cast<Transfer*>(self);
  if (transfer.checks_addresses() && !IsPublicAddress(address->addr)) {
    transfer.refused_ = AddressText(address->addr);
    return CURL_SOCKET_BAD;
  }
  return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

// A connection that was kept was opened for another request, which may have been allowed more.
int Transfer::BeforeRequest(void* self, char* address, char*, int, int) {
  Transfer& transfer = *static_cast<Transfer*>(self);
  if (!transfer.checks_addresses() || !IsPrivateLiteral(address)) return CURL_PREREQFUNC_OK;
  transfer.refused_ = address;
  return CURL_PREREQFUNC_ABORT;
}

absl::StatusOr<Answer> Transfer::Result(CURLcode code) {
  if (code != CURLE_OK && !(code == CURLE_WRITE_ERROR && cut_)) {
    curl_off_t sent_after = 0;  // when all was ready to send; 0 = it never was
    curl_easy_getinfo(easy_, CURLINFO_PRETRANSFER_TIME_T, &sent_after);
    return sent_after == 0 ? NeverSent(Fault(code)) : Fault(code);
  }
  long status = 0;  // NOLINT(google-runtime-int): libcurl's type
  curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
  answer_.status = static_cast<int>(status);
  if (status < 200 || status >= 300) TakeSecretsOut(answer_.body);
  return std::move(answer_);
}

// Some servers tell whom they refuse what they were sent, and a refusal is stored and logged.
void Transfer::TakeSecretsOut(std::string& body) const {
  if (body.empty()) return;
  for (const std::string& header : request_.secret_headers) {
    body = WithoutQuotes(body, std::string_view(header).substr(header.find(':') + 1));
  }
  const std::string& url = request_.url.text;
  if (const size_t query = url.find('?'); query != std::string::npos) {
    body = WithoutQuotes(body, std::string_view(url).substr(query));
  }
}

absl::Status Transfer::Refused(const std::string& address) const {
  return NeverSent(
      MakeStatus(absl::StatusCode::kPermissionDenied,
                 "{} leads to {}, an address of this machine or of a private network: set "
                 "allow_private: true if that is meant",
                 request_.url.origin, address));
}

absl::Status Transfer::Fault(CURLcode code) const {
  const std::string& origin = request_.url.origin;
  const Settings& settings = *configured_;
  const std::string said =
      Printable(Truncate(error_[0] == '\0' ? curl_easy_strerror(code) : error_.data(), 300));
  if (!refused_.empty() && (code == CURLE_COULDNT_CONNECT || code == CURLE_ABORTED_BY_CALLBACK)) {
    return Refused(refused_);
  }
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return MakeStatus(absl::StatusCode::kDeadlineExceeded,
                        "{} did not answer in time (connect_timeout {}, timeout {}): {}", origin,
                        FormatDuration(settings.connect_timeout), FormatDuration(settings.timeout),
                        said);
    case CURLE_COULDNT_RESOLVE_HOST:
      return Unavailable("{}: the name can't be resolved: {}", origin, said);
    case CURLE_PEER_FAILED_VERIFICATION:
      return Unavailable(
          "{}: its certificate can't be verified: {}. Mend the server's certificate, or name the "
          "CA "
          "that signed it (ca_file)",
          origin, said);
    case CURLE_SSL_CACERT_BADFILE:
      return Unavailable("{}: ca_file {} can't be read: {}", origin, settings.ca_file, said);
    case CURLE_SSL_CONNECT_ERROR:
      return Unavailable("{}: no TLS connection (does it speak https there?): {}", origin, said);
    case CURLE_PARTIAL_FILE:
      return Unavailable("{}: its answer ended too early: {}", origin, said);
    case CURLE_WRITE_ERROR:
      return Unavailable("{}: its answer has more than {} of headers", origin,
                         FormatBytes(kMostHeaderBytes));
    default:
      return Unavailable("{}: {}", origin, said);
  }
}

Client::Done Transfer::Finish() {
  const std::string url = std::move(request_.url.text);
  request_ = {};
  request_.url.text = url;  // what the handle has
  answer_ = {};
  return std::exchange(done_, nullptr);
}

}  // namespace lockstep::http
