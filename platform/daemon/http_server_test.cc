#include "platform/daemon/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "platform/status.h"

namespace lockstep {
namespace {

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
      Ask(server_.port(), "GET /hello?name=a%20b HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\nhello a b"));
}

TEST_F(HttpServerTest, RefusesTheRest) {
  EXPECT_THAT(Ask(server_.port(), "GET /other HTTP/1.1\r\nHost: x\r\n\r\n"),
              StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask(server_.port(), "POST /hello HTTP/1.1\r\nHost: x\r\n\r\n"),
              StartsWith("HTTP/1.1 405"));
}

TEST_F(HttpServerTest, TurnsAThrowingHandlerIntoAnAnswer) {
  const std::string answer = Ask(server_.port(), "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 500"));
  EXPECT_THAT(answer, ::testing::Not(HasSubstr("map::at"))) << "what was wrong is for the log";
}

// A connection that a test holds open. Reads and writes wait for ten seconds at most.
class Client {
 public:
  explicit Client(int port, const char* host = "127.0.0.1") : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience{.tv_sec = 10, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = inet_addr(host);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // False once the server has ended the connection.
  bool Send(const std::string& text) {
    return send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
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

constexpr char kHello[] = "GET /hello?name=you HTTP/1.1\r\nHost: x\r\n\r\n";

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

  HttpServer server_{HttpOptions{.request_timeout = Millis(300), .threads = 2}};
};

// Slowloris: requests that never come to an end, from more clients than there are threads.
TEST_F(SlowClientsTest, RequestsThatTrickleInAreCutOffAndOthersAreAnswered) {
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 6; ++i) {
    slow.push_back(std::make_unique<Client>(server_.port()));
    ASSERT_TRUE(slow.back()->Send("GET /hello HTTP/1.1\r\nHost: x\r\nX-Slow: "));
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
    ASSERT_TRUE(lazy.back()->Send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n"));
  }
  EXPECT_THAT(Answer(), StartsWith("HTTP/1.1 200"));
}

TEST_F(SlowClientsTest, MoreConnectionsThanItTakesDoNotEndIt) {
  std::vector<std::unique_ptr<Client>> many;
  for (int i = 0; i < 60; ++i) many.push_back(std::make_unique<Client>(server_.port()));
  many.clear();
  EXPECT_THAT(Answer(), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, RefusesAHeadThatIsTooLarge) {
  const std::string answer = Ask(
      server_.port(),
      "GET /hello?name=x HTTP/1.1\r\nHost: x\r\nX-Large: " + std::string(20'000, 'x') + "\r\n\r\n");
  EXPECT_THAT(answer, ::testing::Not(HasSubstr("hello")));
  EXPECT_THAT(Ask(server_.port(), kHello), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, IsBoundToLoopbackUnlessToldOtherwise) {
  EXPECT_THAT(server_.url(), StartsWith("http://127.0.0.1:"));
  EXPECT_FALSE(Client(server_.port(), "127.0.0.2").connected());
  HttpServer open(HttpOptions{.address = "0.0.0.0"});
  ASSERT_TRUE(open.Start().ok());
  EXPECT_TRUE(Client(open.port(), "127.0.0.2").connected());
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
