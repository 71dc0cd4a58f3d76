#include "tests/support/http_get.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <regex>
#include <stdexcept>

namespace lockstep::testing {

std::string HttpGet(const std::string& url) {
  static const std::regex kOurs("http://127\\.0\\.0\\.1:([0-9]+)(/.*)");
  std::smatch parts;
  if (!std::regex_match(url, parts, kOurs)) {
    throw std::runtime_error("not an address of ours: " + url);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(parts[1])));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string text;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    const std::string request =
        "GET " + parts[2].str() + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    ::send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    char buffer[4096];
    for (ssize_t got = 0; (got = ::recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
      text.append(buffer, static_cast<size_t>(got));
    }
  }
  ::close(fd);
  const size_t body = text.find("\r\n\r\n");
  return body == std::string::npos ? "" : text.substr(9, 3) + " " + text.substr(body + 4);
}

}  // namespace lockstep::testing
