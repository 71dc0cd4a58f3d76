#include "tests/chaos/system/gate.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>

#include "tests/chaos/system/schedule.h"

namespace lockstep::chaos {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Takes one connection and says everything back.
class Echo {
 public:
  Echo() : listening_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = Loopback(0);
    socklen_t length = sizeof(address);
    ::bind(listening_, reinterpret_cast<sockaddr*>(&address), length);
    ::listen(listening_, 1);
    ::getsockname(listening_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] {
      const int peer = ::accept(listening_, nullptr, nullptr);
      char buffer[4096];
      for (ssize_t n; (n = ::recv(peer, buffer, sizeof(buffer), 0)) > 0;) {
        ::send(peer, buffer, static_cast<size_t>(n), MSG_NOSIGNAL);
      }
      ::close(peer);
    });
  }
  ~Echo() {
    thread_.join();
    ::close(listening_);
  }
  int port() const { return port_; }

 private:
  const int listening_;
  int port_ = 0;
  std::thread thread_;
};

class Client {
 public:
  explicit Client(int port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const sockaddr_in address = Loopback(port);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { ::close(fd_); }
  void Say(const std::string& text) const { ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  std::string Hear(size_t bytes) const {
    std::string heard(bytes, '\0');
    const ssize_t n = ::recv(fd_, heard.data(), bytes, MSG_WAITALL);
    heard.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return heard;
  }
  bool Hears(int within_ms) const {
    pollfd one{fd_, POLLIN, 0};
    return ::poll(&one, 1, within_ms) > 0;
  }
  int Error() const {
    char byte = 0;
    return ::recv(fd_, &byte, 1, 0) < 0 ? errno : 0;
  }

 private:
  const int fd_;
};

TEST(Gate, PassesBytesBothWays) {
  Echo echo;
  Gate gate(echo.port());
  const Client client(gate.port());
  std::string text(1 << 20, 'x');
  std::thread saying([&] { client.Say(text); });
  EXPECT_EQ(client.Hear(text.size()), text);
  saying.join();
}

TEST(Gate, HoldsBytesBackWhileItIsStalled) {
  Echo echo;
  Gate gate(echo.port());
  const Client client(gate.port());
  client.Say("before");
  ASSERT_EQ(client.Hear(6), "before");
  gate.Stall();
  client.Say("after");
  EXPECT_FALSE(client.Hears(100));
  gate.Flow();
  EXPECT_EQ(client.Hear(5), "after");
}

TEST(Gate, ResetsBothSides) {
  Echo echo;  // its thread ends only when its side has ended too
  Gate gate(echo.port());
  const Client client(gate.port());
  client.Say("x");
  ASSERT_EQ(client.Hear(1), "x");
  gate.Reset();
  EXPECT_EQ(client.Error(), ECONNRESET);
}

TEST(Gate, LeadsToAnotherServerWhenItIsTurned) {
  Echo first;
  Gate gate(first.port());
  const Client before(gate.port());
  before.Say("x");
  ASSERT_EQ(before.Hear(1), "x");
  Echo second;
  gate.Retarget(second.port());
  gate.Reset();
  EXPECT_EQ(before.Error(), ECONNRESET);
  const Client after(gate.port());
  after.Say("y");
  EXPECT_EQ(after.Hear(1), "y");
}

TEST(Schedule, IsTheSameForTheSameSeed) {
  const auto text = [](uint64_t seed) {
    std::string all;
    for (const Planned& planned : MakeSchedule(seed, Millis(120'000))) {
      all += std::to_string(planned.at.count()) + std::string(Name(planned.fault)) +
             std::to_string(planned.pick) + std::to_string(planned.lasts.count()) + "\n";
    }
    return all;
  };
  EXPECT_EQ(text(7), text(7));
  EXPECT_NE(text(7), text(8));
}

TEST(Schedule, HoldsEveryKindOfFaultInAMinute) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::vector<int> injected(static_cast<size_t>(Fault::kCount));
    for (const Planned& planned : MakeSchedule(seed, Millis(60'000))) {
      ++injected[static_cast<size_t>(planned.fault)];
    }
    for (size_t fault = 0; fault < injected.size(); ++fault) {
      EXPECT_GT(injected[fault], 0) << "seed " << seed << ": " << Name(static_cast<Fault>(fault));
    }
  }
}

}  // namespace
}  // namespace lockstep::chaos
