#include "runner/testing/cutting_proxy.h"

#include <poll.h>

namespace lockstep::runner {

using testing::ReceiveSome;
using testing::SendAll;

CuttingProxy::CuttingProxy(const std::string& url)
    : relay_(url, [this](int client) { Serve(client); }) {}

void CuttingProxy::CutNext(Cut where, int times) {
  std::lock_guard lock(mu_);
  where_ = where;
  left_ = times;
}

void CuttingProxy::Serve(int client) {
  const int server = relay_.Connect();
  if (server < 0) return testing::Hang(client, client);
  // One thread for both directions: an answer that shall not be heard is read here.
  for (bool open = true; open;) {
    pollfd ready[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
    if (::poll(ready, 2, -1) <= 0) continue;
    if (ready[0].revents != 0) {
      const std::string bytes = ReceiveSome(client);
      open = !bytes.empty() && Forward(bytes, client, server);
    }
    if (open && ready[1].revents != 0) {
      const std::string bytes = ReceiveSome(server);
      open = !bytes.empty() && SendAll(client, bytes);
    }
  }
  testing::Hang(server, client);
}

bool CuttingProxy::Forward(const std::string& bytes, int client, int server) {
  Cut where{};
  {
    std::lock_guard lock(mu_);
    if (left_ == 0 || bytes.find("COMMIT") == std::string::npos) return SendAll(server, bytes);
    --left_;
    where = where_;
  }
  ++cuts_;
  if (where == Cut::kBeforeCommit) return false;
  SendAll(server, bytes);
  if (where == Cut::kAfterCommit) ReceiveSome(server);  // it has answered; the answer ends here
  testing::Hang(client, client);
  return false;
}

}  // namespace lockstep::runner
