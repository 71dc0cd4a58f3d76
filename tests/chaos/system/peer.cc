#include "tests/chaos/system/peer.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

namespace lockstep::chaos {
namespace {

namespace fs = std::filesystem;

// Of its row in /proc/net/tcp, by the ports of its two ends.
std::string InodeOf(int near, int far) {
  const std::string from = fmt::format(":{:04X}", near), to = fmt::format(":{:04X}", far);
  std::ifstream table("/proc/net/tcp");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string skipped, local, remote, inode;
    words >> skipped >> local >> remote;
    if (!local.ends_with(from) || !remote.ends_with(to)) continue;
    for (int i = 0; i < 6; ++i) words >> skipped;
    words >> inode;
    return inode;
  }
  return {};
}

bool Holds(const fs::path& process, const std::string& link) {
  std::error_code failed;
  for (fs::directory_iterator at(process / "fd", failed), end; !failed && at != end;
       at.increment(failed)) {
    std::error_code unread;
    if (fs::read_symlink(at->path(), unread).native() == link) return true;
  }
  return false;
}

}  // namespace

pid_t ProcessBehind(int socket) {
  sockaddr_in ours{}, theirs{};
  socklen_t size = sizeof(ours);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&ours), &size);
  size = sizeof(theirs);
  ::getpeername(socket, reinterpret_cast<sockaddr*>(&theirs), &size);
  const std::string inode = InodeOf(ntohs(theirs.sin_port), ntohs(ours.sin_port));
  if (inode.empty() || inode == "0") return 0;
  const std::string link = fmt::format("socket:[{}]", inode);
  std::error_code failed;
  for (fs::directory_iterator at("/proc", failed), end; !failed && at != end;
       at.increment(failed)) {
    std::string name;
    std::getline(std::ifstream(at->path() / "comm"), name);
    if (name == "lockstep-runner" && Holds(at->path(), link)) {
      return static_cast<pid_t>(std::stol(at->path().filename()));
    }
  }
  return 0;
}

}  // namespace lockstep::chaos
