#include "tests/chaos/system/http_consumer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "postgres/connection.h"
#include "tests/chaos/system/now.h"
#include "tests/chaos/system/peer.h"

namespace lockstep::chaos {
namespace {

constexpr Millis kLook{10};
constexpr Millis kDatabaseRest{500};
constexpr int kSlowestMs = 8;

// Done with, and not waiting: of any life of the read model.
constexpr char kKnown[] = R"sql(
SELECT count(*) FROM feed_state.inbox i
 WHERE i.event_id = $1::uuid AND i.fate IN ('a', 's')
   AND i.generation IN (SELECT generation FROM feed_state.slots WHERE group_name = $2
                        UNION ALL
                        SELECT generation FROM feed_state.retired_generations WHERE group_name = $2)
   AND NOT EXISTS (SELECT FROM feed_state.parked p
                    WHERE p.generation = i.generation AND p.event_id = i.event_id))sql";

std::map<std::string, std::string> Headers(const std::string& head) {
  std::map<std::string, std::string> headers;
  std::istringstream lines(head);
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    std::string name = line.substr(0, colon);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    std::string value = line.substr(colon + 2);
    if (!value.empty() && value.back() == '\r') value.pop_back();
    headers[name] = value.empty() ? "-" : value;
  }
  return headers;
}

// Whether the caller has hung up; what it has sent since stays where it is.
bool Gone(int socket) {
  char byte = 0;
  const ssize_t got = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

std::string Status(const std::string& status, const std::string& headers = "") {
  return fmt::format("HTTP/1.1 {} Whatever\r\n{}Content-Length: 0\r\n\r\n", status, headers);
}

}  // namespace

HttpConsumer::HttpConsumer(HttpConsumerOptions options)
    : options_(std::move(options)), random_(options_.seed) {
  notes_ = ::open(options_.notes_file.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0666);
  if (notes_ < 0) throw std::runtime_error("can't write " + options_.notes_file);
  Listen();
}

HttpConsumer::~HttpConsumer() {
  for (const Client& client : clients_) ::close(client.socket);
  if (listening_ >= 0) ::close(listening_);
  ::close(notes_);
}

void HttpConsumer::Listen() {
  listening_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  ::setsockopt(listening_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(options_.port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(listening_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listening_, 256) != 0) {
    throw std::runtime_error(fmt::format("can't listen on port {}", options_.port));
  }
}

void HttpConsumer::Run(const volatile bool& stop) {
  while (!stop) {
    LookAtMood();
    std::vector<pollfd> polled = {{listening_, POLLIN, 0}};
    for (const Client& client : clients_) polled.push_back({client.socket, POLLIN, 0});
    ::poll(polled.data(), polled.size(), 1);
    size_t at = 1;
    for (Client& client : clients_) {
      if (polled[at++].revents != 0) Read(client);
    }
    if (listening_ >= 0 && polled[0].revents != 0) Accept();
    for (Client& client : clients_) {
      if (!client.over && client.pending && client.pending->due <= Now()) Answer(client);
    }
    std::erase_if(clients_, [](const Client& client) {
      if (client.over) ::close(client.socket);
      return client.over;
    });
  }
}

void HttpConsumer::LookAtMood() {
  if (Now() < next_look_) return;
  next_look_ = Now() + kLook;
  std::string mood;
  if (!(std::ifstream(options_.mood_file) >> mood) || mood == mood_) return;
  mood_ = mood;
  if (mood_ == "refuse") {
    ResetAll();
    if (listening_ >= 0) ::close(std::exchange(listening_, -1));
  } else if (listening_ < 0) {
    Listen();
  }
}

void HttpConsumer::ResetAll() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  for (Client& client : clients_) {
    ::setsockopt(client.socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    client.over = true;
  }
}

void HttpConsumer::Accept() {
  const int socket = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket < 0) return;
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  clients_.push_back({.socket = socket, .runner = ProcessBehind(socket)});
}

void HttpConsumer::Read(Client& client) {
  if (client.over) return;
  std::array<char, 16384> buffer;
  const ssize_t got = ::recv(client.socket, buffer.data(), buffer.size(), 0);
  if (got > 0) client.bytes.append(buffer.data(), static_cast<size_t>(got));
  const bool ended = got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
  if (!ended) return Take(client);
  if (client.pending) {
    client.pending->note.answer = "gone";
    client.pending->note.answered = Millisecond(Now());
    Note(AnswerLine(client.pending->note));
  }
  client.over = true;
}

void HttpConsumer::Take(Client& client) {
  if (client.pending || client.hangs) return;
  const size_t end = client.bytes.find("\r\n\r\n");
  if (end == std::string::npos) return;
  auto headers = Headers(client.bytes.substr(0, end + 2));
  const size_t length = std::strtoul(headers["content-length"].c_str(), nullptr, 10);
  if (client.bytes.size() < end + 4 + length) return;
  const std::string body = client.bytes.substr(end + 4, length);
  client.bytes.erase(0, end + 4 + length);
  CallNote note{.number = ++calls_,
                .arrived = Millisecond(Now()),
                .runner = client.runner,
                .event_id = headers["lockstep-event-id"],
                .key = headers["lockstep-aggregate-id"],
                .version = std::strtoll(headers["lockstep-version"].c_str(), nullptr, 10),
                .idempotency_key = headers["idempotency-key"],
                .replay = headers["lockstep-replay"] != "false"};
  const bool gone = Gone(client.socket);
  if (!gone && accepted_.contains(note.event_id)) note.known = AskInbox(note.event_id);
  Note(ArrivalLine(note));
  const Millis slow(static_cast<int64_t>(random_() % (kSlowestMs + 1)));
  client.pending = {.note = std::move(note),
                    .due = Now() + slow,
                    .refuse = body.find("\"refuse\":true") != std::string::npos};
}

void HttpConsumer::Answer(Client& client) {
  Pending pending = *std::exchange(client.pending, std::nullopt);
  std::string bytes;
  if (Gone(client.socket)) {
    pending.note.answer = "gone";
    client.over = true;
  } else if (mood_ == "hang") {
    pending.note.answer = "hang";
    client.hangs = true;
  } else if (mood_ == "cut") {
    pending.note.answer = "cut";
    bytes = random_() % 2 == 0 ? "HTTP/1.1 20" : "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfi";
    client.over = true;
  } else if (mood_ == "500" || mood_ == "503") {
    pending.note.answer = mood_;
    bytes = Status(mood_);
  } else if (mood_ == "429") {
    pending.note.answer = mood_;
    bytes = Status(mood_, "Retry-After: 1\r\n");
  } else if (pending.refuse) {
    pending.note.answer = "422";
    bytes = Status("422");
  } else {
    pending.note.answer = "yes";
    accepted_.insert(pending.note.event_id);
    bytes = Status("204");
  }
  pending.note.answered = Millisecond(Now());
  Note(AnswerLine(pending.note));
  if (!bytes.empty()) {
    const ssize_t sent = ::send(client.socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(bytes.size())) client.over = true;
  }
  if (!client.over) Take(client);
}

char HttpConsumer::AskInbox(const std::string& event_id) {
  if (Now() < ask_again_) return '?';
  for (bool fresh = false; !fresh;) {
    if (connection_ == nullptr) {
      auto opened = postgres::Connection::Open({.url = options_.database,
                                                .application_name = "chaos",
                                                .connect_timeout = Millis(1'000),
                                                .statement_timeout = Millis(1'000)});
      if (!opened.ok()) break;
      connection_ = *std::move(opened);
      fresh = true;
    }
    const auto found = connection_->Execute(kKnown, event_id, options_.group);
    if (found.ok()) return found->Int(0, 0) > 0 ? 'y' : 'n';
    connection_.reset();  // it may be that of before a failover
  }
  ask_again_ = Now() + kDatabaseRest;
  return '?';
}

// Written before anything follows from it, so that not even this program's death could lose it.
void HttpConsumer::Note(const std::string& line) {
  if (::write(notes_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    throw std::runtime_error("can't write " + options_.notes_file);
  }
}

}  // namespace lockstep::chaos
