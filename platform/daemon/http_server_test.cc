#include "platform/daemon/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "platform/host_name.h"
#include "platform/status.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Ask(int port, const std::string& request) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(fd, buffer, sizeof(buffer))) > 0;) answer.append(buffer, n);
  close(fd);
  return answer;
}

class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_.Handle("/hello", [](const HttpRequest& request) {
      return HttpResponse{.body = "hello " + request.query.at("name")};
    });
    ASSERT_TRUE(server_.Start().ok());
  }

  HttpServer server_{HttpOptions{}};
};

TEST_F(HttpServerTest, AnswersWhatIsHandled) {
  const std::string answer =
      Ask(server_.port(), "GET /hello?name=a%20b HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\nhello a b"));
}

TEST_F(HttpServerTest, RefusesTheRest) {
  EXPECT_THAT(Ask(server_.port(), "GET /other HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask(server_.port(), "POST /hello HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              StartsWith("HTTP/1.1 405"));
}

TEST_F(HttpServerTest, TurnsAThrowingHandlerIntoAnAnswer) {
  const std::string answer = Ask(server_.port(), "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 500"));
  EXPECT_THAT(answer, ::testing::Not(HasSubstr("map::at"))) << "what was wrong is for the log";
}

// A connection that a test holds open. Reads and writes wait for ten seconds at most.
class Client {
 public:
  explicit Client(int port, const char* host = "127.0.0.1", const char* from = nullptr)
      : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience{.tv_sec = 10, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = inet_addr(host);
    if (from != nullptr) {
      sockaddr_in own{.sin_family = AF_INET, .sin_addr = {.s_addr = inet_addr(from)}};
      EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&own), sizeof(own)), 0);
    }
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // False once the server has ended the connection.
  bool Send(const std::string& text) {
    return send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  void EndOwnSide() { shutdown(fd_, SHUT_WR); }
  // Everything until the server ends the connection; nothing when it does not.
  std::optional<std::string> ReadToEnd() {
    std::string answer;
    char buffer[4096];
    ssize_t n = 0;
    while ((n = read(fd_, buffer, sizeof(buffer))) > 0) answer.append(buffer, n);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
    return answer;
  }
  bool connected() const { return connected_; }

 private:
  const int fd_;
  bool connected_ = false;
};

constexpr char kHello[] = "GET /hello?name=you HTTP/1.1\r\nHost: localhost\r\n\r\n";

class SlowClientsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_.Handle("/hello", [](const HttpRequest&) { return HttpResponse{.body = "hello"}; });
    server_.Handle("/large", [](const HttpRequest&) {
      return HttpResponse{.body = std::string(16 << 20, 'x')};  // more than sockets take
    });
    ASSERT_TRUE(server_.Start().ok());
  }
  std::string Answer() {
    Client client(server_.port());
    client.Send(kHello);
    return client.ReadToEnd().value_or("no answer");
  }

  HttpServer server_{HttpOptions{.request_timeout = Millis(300)}};
};

// More than it takes: probes are answered all the same, and at once, not after others were cut off.
TEST_F(HttpServerTest, HalfSentRequestsKeepNobodyFromAnAnswer) {
  HttpServer server(HttpOptions{.request_timeout = Millis(600'000)});
  server.Handle("/healthz", [](const HttpRequest&) { return HttpResponse{.body = "ok"}; });
  ASSERT_TRUE(server.Start().ok());
  std::vector<std::unique_ptr<Client>> half;
  for (int i = 0; i < 300; ++i) {
    const std::string from = i % 10 == 0 ? "127.0.0.1" : "127.0.0." + std::to_string(i % 200 + 2);
    half.push_back(std::make_unique<Client>(server.port(), "127.0.0.1", from.c_str()));
    ASSERT_TRUE(half.back()->connected());
    half.back()->Send("GET /healthz HTTP/1.1\r\nHost: local");
    if (i % 50 != 48) continue;
    Client probe(server.port());
    probe.Send("GET /healthz HTTP/1.1\r\n\r\n");
    ASSERT_THAT(probe.ReadToEnd().value_or("no answer"), StartsWith("HTTP/1.1 200")) << i;
  }
}

TEST_F(HttpServerTest, OnePeerTakesThePlacesOfItsOwnOnly) {
  HttpServer server(HttpOptions{.request_timeout = Millis(600'000), .per_peer = 4});
  server.Handle("/healthz", [](const HttpRequest&) { return HttpResponse{.body = "ok"}; });
  ASSERT_TRUE(server.Start().ok());
  Client early(server.port(), "127.0.0.1", "127.0.0.2");
  early.Send("GET /healthz HTTP/1.1\r\n");
  std::vector<std::unique_ptr<Client>> greedy;
  for (int i = 0; i < 5; ++i) {
    greedy.push_back(std::make_unique<Client>(server.port()));
    greedy.back()->Send("GET /healthz HTTP/1.1\r\n");
  }
  EXPECT_EQ(greedy[0]->ReadToEnd(), "") << "its oldest has made room";
  early.Send("\r\n");
  EXPECT_THAT(early.ReadToEnd().value_or("no answer"), StartsWith("HTTP/1.1 200"));
}

TEST_F(SlowClientsTest, AnswersThatNobodyTakesDoNotFillTheMemory) {
  HttpServer server(HttpOptions{.request_timeout = Millis(600'000), .max_unsent = 40 << 20});
  server.Handle("/large", [](const HttpRequest&) {
    return HttpResponse{.body = std::string(16 << 20, 'x')};
  });
  ASSERT_TRUE(server.Start().ok());
  std::vector<std::unique_ptr<Client>> lazy;
  for (int i = 0; i < 5; ++i) {
    lazy.push_back(std::make_unique<Client>(server.port()));
    lazy.back()->Send("GET /large HTTP/1.1\r\n\r\n");
  }
  Ask(server.port(), "GET /other HTTP/1.1\r\n\r\n");  // a round later
  EXPECT_LT(lazy[0]->ReadToEnd().value_or("").size(), 16u << 20) << "the oldest was given up";
  EXPECT_GT(lazy[4]->ReadToEnd().value_or("").size(), 16u << 20);
}

// DNS rebinding: a page of somebody else, whose name was turned to our address, must not read ours.
TEST_F(HttpServerTest, IsServedUnderNamesOfItsOwn) {
  HttpServer server(HttpOptions{.hosts = {"status.example.com"}});
  server.Handle("/api", [](const HttpRequest&) { return HttpResponse{.body = "secret"}; });
  server.Handle(
      "/healthz", [](const HttpRequest&) { return HttpResponse{.body = "ok"}; },
      HttpServer::Hosts::kAny);
  ASSERT_TRUE(server.Start().ok());
  const auto ask = [&](const std::string& path, const std::string& host) {
    return Ask(server.port(), "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  };
  for (const char* host : {"127.0.0.1:9101", "10.1.2.3", "[::1]:80", "localhost:9101", "LOCALHOST",
                           "status.example.com:80", "Status.Example.com."}) {
    EXPECT_THAT(ask("/api", host), StartsWith("HTTP/1.1 200")) << host;
  }
  for (const char* host : {"evil.example", "127.0.0.1.evil.example", "localhost.evil.example:9101",
                           "evil.example:127.0.0.1", "[evil.example]", "0x7f000001"}) {
    EXPECT_THAT(ask("/api", host), AllOf(StartsWith("HTTP/1.1 421"), HasSubstr("http.hosts")))
        << host;
    EXPECT_THAT(ask("/healthz", host), StartsWith("HTTP/1.1 200")) << host << ": a probe";
    EXPECT_THAT(ask("/nothing", host), StartsWith("HTTP/1.1 421")) << host;
  }
  EXPECT_THAT(
      Ask(server.port(), "GET /api HTTP/1.1\r\nHost: localhost\r\nhost: evil.example\r\n\r\n"),
      StartsWith("HTTP/1.1 400"));
}

TEST_F(HttpServerTest, ServesIpv6) {
  HttpServer server(HttpOptions{.address = "::1"});
  if (const absl::Status started = server.Start(); !started.ok()) {
    GTEST_SKIP() << "this machine has no IPv6: " << started;
  }
  EXPECT_THAT(server.url(), StartsWith("http://[::1]:"));
  const int fd = socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(static_cast<uint16_t>(server.port()));
  address.sin6_addr = in6addr_loopback;
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  close(fd);
  HttpServer both(HttpOptions{.address = "::"});
  ASSERT_TRUE(both.Start().ok());
  EXPECT_TRUE(Client(both.port()).connected()) << "IPv4 too";
  HttpServer bracketed(HttpOptions{.address = "[::1]"});
  ASSERT_TRUE(bracketed.Start().ok());
  EXPECT_THAT(bracketed.url(), StartsWith("http://[::1]:"));
}

TEST_F(HttpServerTest, TellsNonsenseFromRequests) {
  for (const char* text : {"\r\n\r\n", "hello\r\n\r\n", "GET /hello\r\n\r\n",
                           "GET /a b HTTP/1.1\r\n\r\n", "GET /hello SMTP/1.1\r\n\r\n"}) {
    EXPECT_THAT(Ask(server_.port(), text), StartsWith("HTTP/1.1 400")) << text;
  }
  EXPECT_THAT(Ask(server_.port(), "GET /hello?name=%4&a=%zz&b=%41+ HTTP/1.0\r\n\r\n"),
              HasSubstr("\r\n\r\nhello %4"));
  const std::string head = Ask(server_.port(), "HEAD /hello?name=x HTTP/1.1\r\n\r\n");
  EXPECT_THAT(head, AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("Content-Length: 7\r\n"),
                          ::testing::Not(HasSubstr("hello"))));
}

// Slowloris: requests that never come to an end, from more clients than there are threads.
TEST_F(SlowClientsTest, RequestsThatTrickleInAreCutOffAndOthersAreAnswered) {
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 6; ++i) {
    slow.push_back(std::make_unique<Client>(server_.port()));
    ASSERT_TRUE(slow.back()->Send("GET /hello HTTP/1.1\r\nHost: localhost\r\nX-Slow: "));
  }
  EXPECT_THAT(Answer(), StartsWith("HTTP/1.1 200"));
  // A byte now and then does not buy more time: each is ended by the server.
  for (const auto& client : slow) {
    while (client->Send("a")) std::this_thread::sleep_for(Millis(20));
  }
  EXPECT_THAT(Answer(), StartsWith("HTTP/1.1 200"));
}

TEST_F(SlowClientsTest, AClientThatSendsNothingIsCutOff) {
  Client silent(server_.port());
  EXPECT_EQ(silent.ReadToEnd(), "");
}

TEST_F(SlowClientsTest, AnAnswerThatIsNotTakenHoldsNobodyUp) {
  std::vector<std::unique_ptr<Client>> lazy;
  for (int i = 0; i < 3; ++i) {
    lazy.push_back(std::make_unique<Client>(server_.port()));
    ASSERT_TRUE(lazy.back()->Send("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  }
  EXPECT_THAT(Answer(), StartsWith("HTTP/1.1 200"));
}

TEST_F(SlowClientsTest, MoreConnectionsThanItTakesDoNotEndIt) {
  std::vector<std::unique_ptr<Client>> many;
  for (int i = 0; i < 60; ++i) many.push_back(std::make_unique<Client>(server_.port()));
  many.clear();
  EXPECT_THAT(Answer(), StartsWith("HTTP/1.1 200"));
}

// Requests whose answer is given later, by the test.
class LaterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_.HandleLater("/later", [this](const HttpRequest&, const HttpReply& reply) {
      const std::scoped_lock lock(mu_);
      replies_.push_back(reply);
    });
    server_.Handle("/hello", [](const HttpRequest&) { return HttpResponse{.body = "hello"}; });
    ASSERT_TRUE(server_.Start().ok());
  }
  std::unique_ptr<Client> Wait() {
    auto client = std::make_unique<Client>(server_.port());
    const size_t before = Replies().size();
    client->Send("GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n");
    while (Replies().size() == before) std::this_thread::sleep_for(Millis(1));
    return client;
  }
  std::vector<HttpReply> Replies() {
    const std::scoped_lock lock(mu_);
    return replies_;
  }

  std::mutex mu_;
  std::vector<HttpReply> replies_;
  HttpServer server_{HttpOptions{.request_timeout = Millis(300), .per_peer = 2, .waiting = 3}};
};

TEST_F(LaterTest, AnAnswerMayComeLaterAndHoldsNobodyUp) {
  const auto first = Wait();
  const auto second = Wait();
  const auto third = Wait();
  // More than a peer may have otherwise, and longer than a request may take.
  std::this_thread::sleep_for(Millis(400));
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(Ask(server_.port(), kHello), StartsWith("HTTP/1.1 200"));
  }
  std::thread([&] { Replies()[1].Send({.status = 408, .body = "in vain"}); }).join();
  EXPECT_THAT(second->ReadToEnd().value_or("no answer"),
              AllOf(StartsWith("HTTP/1.1 408 Request Timeout"), HasSubstr("in vain")));
  Replies()[0].Send({.body = "there"});
  Replies()[0].Send({.body = "there again"});
  EXPECT_THAT(first->ReadToEnd().value_or("no answer"), ::testing::EndsWith("\r\n\r\nthere"));
  server_.Stop();
  EXPECT_EQ(third->ReadToEnd(), "");
  EXPECT_TRUE(Replies()[2].Gone());
  Replies()[2].Send({.body = "too late"});
}

TEST_F(LaterTest, NoMoreWaitThanAreAllowed) {
  const auto first = Wait();
  auto second = Wait();
  const auto third = Wait();
  EXPECT_THAT(Ask(server_.port(), "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              StartsWith("HTTP/1.1 429"));
  second.reset();  // who leaves makes room
  while (!Replies()[1].Gone()) std::this_thread::sleep_for(Millis(1));
  const auto fourth = Wait();
  Replies()[3].Send({.body = "there"});
  EXPECT_THAT(fourth->ReadToEnd().value_or("no answer"), StartsWith("HTTP/1.1 200"));
}

TEST(LaterPeers, OnePeerLeavesPlacesToOthers) {
  HttpServer server(HttpOptions{.waiting = 4, .waiting_per_peer = 2});
  std::mutex mu;
  std::vector<HttpReply> replies;
  const auto taken = [&] {
    const std::scoped_lock lock(mu);
    return replies.size();
  };
  server.HandleLater("/later", [&](const HttpRequest&, const HttpReply& reply) {
    const std::scoped_lock lock(mu);
    replies.push_back(reply);
  });
  ASSERT_TRUE(server.Start().ok());
  constexpr char kLater[] = "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n";
  std::vector<std::unique_ptr<Client>> waiting;
  for (const char* from : {"127.0.0.1", "127.0.0.1", "127.0.0.2"}) {
    waiting.push_back(std::make_unique<Client>(server.port(), "127.0.0.1", from));
    waiting.back()->Send(kLater);
    while (taken() < waiting.size()) std::this_thread::sleep_for(Millis(1));
    if (waiting.size() != 2) continue;
    EXPECT_THAT(Ask(server.port(), kLater),
                AllOf(StartsWith("HTTP/1.1 429"), HasSubstr("of this address")));
  }
  replies[2].Send({.body = "there"});
  EXPECT_THAT(waiting[2]->ReadToEnd().value_or("no answer"), StartsWith("HTTP/1.1 200"));
  server.Stop();
}

// An answer that is there is given to a client that has ended its own side; one that waits is taken
// to be gone, and makes room.
TEST_F(LaterTest, AClientThatEndsItsSideWaitsNoLonger) {
  Client quick(server_.port());
  quick.Send(kHello);
  quick.EndOwnSide();
  EXPECT_THAT(quick.ReadToEnd().value_or("no answer"), StartsWith("HTTP/1.1 200"));
  const auto waits = Wait();
  waits->EndOwnSide();
  EXPECT_EQ(waits->ReadToEnd(), "");
  while (!Replies()[0].Gone()) std::this_thread::sleep_for(Millis(1));
}

TEST_F(HttpServerTest, RefusesAHeadThatIsTooLarge) {
  const std::string answer =
      Ask(server_.port(), "GET /hello?name=x HTTP/1.1\r\nHost: localhost\r\nX-Large: " +
                              std::string(20'000, 'x') + "\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(Ask(server_.port(), kHello), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, IsBoundToLoopbackUnlessToldOtherwise) {
  EXPECT_THAT(server_.url(), StartsWith("http://127.0.0.1:"));
  EXPECT_FALSE(Client(server_.port(), "127.0.0.2").connected());
  HttpServer open(HttpOptions{.address = "0.0.0.0"});
  ASSERT_TRUE(open.Start().ok());
  EXPECT_TRUE(Client(open.port(), "127.0.0.2").connected());
}

TEST_F(HttpServerTest, SaysByWhichAddressOthersReachIt) {
  EXPECT_EQ(server_.advertised(), server_.url());
  EXPECT_EQ(HttpServer(HttpOptions{}).advertised(), "") << "it is not started";
  HttpServer all(HttpOptions{.address = "0.0.0.0"});
  all.Handle("/x", [](const HttpRequest&) { return HttpResponse{.body = "here"}; });
  ASSERT_TRUE(all.Start().ok());
  EXPECT_EQ(all.advertised(), "http://" + HostName() + ":" + std::to_string(all.port()));
  HttpServer named(HttpOptions{.advertise = "https://pages.example:8443/feed"});
  named.Handle("/x", [](const HttpRequest&) { return HttpResponse{.body = "here"}; });
  ASSERT_TRUE(named.Start().ok());
  EXPECT_EQ(named.advertised(), "https://pages.example:8443/feed");
  // And is called so.
  const auto ask = [](const HttpServer& server, const std::string& host) {
    return Ask(server.port(), "GET /x HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  };
  EXPECT_THAT(ask(all, HostName()), HasSubstr("here"));
  EXPECT_THAT(ask(named, "pages.example:8443"), HasSubstr("here"));
  EXPECT_THAT(ask(named, HostName() + ".evil.example"), StartsWith("HTTP/1.1 421"));
}

TEST_F(HttpServerTest, StopsAndCanBeStoppedTwice) {
  server_.Stop();
  server_.Stop();
  EXPECT_FALSE(Client(server_.port()).connected());
}

TEST_F(HttpServerTest, SaysThatAPortIsTaken) {
  HttpServer second(HttpOptions{.port = server_.port()});
  const absl::Status started = second.Start();
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(std::string(MessageOf(started)), HasSubstr("taken"));
}

}  // namespace
}  // namespace lockstep
