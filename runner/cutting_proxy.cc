#include "runner/cutting_proxy.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <regex>
#include <stdexcept>

namespace lockstep::runner {
namespace {

constexpr int kLookMillis = 50;  // how often a thread looks whether it shall end

sockaddr_in Local(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool WriteAll(int to, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = send(to, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

// Empty = the other side is gone.
std::string ReadSome(int from) {
  std::string bytes(1 << 16, '\0');
  const ssize_t n = recv(from, bytes.data(), bytes.size(), 0);
  bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return bytes;
}

}  // namespace

CuttingProxy::CuttingProxy(const std::string& url) {
  std::smatch parts;
  if (!std::regex_match(url, parts, std::regex("(.*@127\\.0\\.0\\.1:)([0-9]+)(/.*)"))) {
    throw std::runtime_error("the database is not reached over TCP on this machine: " + url);
  }
  server_port_ = std::stoi(parts[2]);
  listener_ = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Local(0);
  socklen_t size = sizeof(address);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener_, 16) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no port to listen on");
  }
  url_ = parts[1].str() + std::to_string(ntohs(address.sin_port)) + parts[3].str();
  accepting_ = std::thread([this] { Accept(); });
}

CuttingProxy::~CuttingProxy() {
  stopping_ = true;
  accepting_.join();
  close(listener_);
}

void CuttingProxy::CutNext(Cut where, int times) {
  std::lock_guard lock(mu_);
  where_ = where;
  left_ = times;
}

void CuttingProxy::Accept() {
  while (!stopping_) {
    pollfd ready{listener_, POLLIN, 0};
    if (poll(&ready, 1, kLookMillis) <= 0) continue;
    const int client = accept(listener_, nullptr, nullptr);
    if (client >= 0) relays_.emplace_back([this, client] { Relay(client); });
  }
  for (std::thread& relay : relays_) relay.join();
}

void CuttingProxy::Relay(int client) {
  const int server = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = Local(server_port_);
  bool open = connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  while (open && !stopping_) {
    pollfd ready[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
    if (poll(ready, 2, kLookMillis) <= 0) continue;
    if (ready[0].revents != 0) {
      const std::string bytes = ReadSome(client);
      open = !bytes.empty() && Forward(bytes, client, server);
    }
    if (open && ready[1].revents != 0) {
      const std::string bytes = ReadSome(server);
      open = !bytes.empty() && WriteAll(client, bytes);
    }
  }
  close(client);
  close(server);
}

bool CuttingProxy::Forward(const std::string& bytes, int client, int server) {
  Cut where{};
  {
    std::lock_guard lock(mu_);
    if (left_ == 0 || bytes.find("COMMIT") == std::string::npos) return WriteAll(server, bytes);
    --left_;
    where = where_;
  }
  ++cuts_;
  if (where == Cut::kBeforeCommit) return false;
  WriteAll(server, bytes);
  if (where == Cut::kAfterCommit) ReadSome(server);  // it has answered; the answer ends here
  shutdown(client, SHUT_RDWR);
  return false;
}

}  // namespace lockstep::runner
