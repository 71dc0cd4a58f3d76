#include "publisher/relay/mailbox.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace lockstep::publisher {

Mailbox::Mailbox() : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (event_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

Mailbox::~Mailbox() { ::close(event_); }

void Mailbox::Post(Answer answer) {
  {
    std::scoped_lock lock(mu_);
    answers_.push_back(std::move(answer));
  }
  Wake();
}

void Mailbox::Wake() {
  const uint64_t one = 1;
  // Full means that a wake is pending already.
  [[maybe_unused]] const auto written = ::write(event_, &one, sizeof(one));
}

std::vector<Mailbox::Answer> Mailbox::Take() {
  std::scoped_lock lock(mu_);
  return std::exchange(answers_, {});
}

bool Mailbox::Wait(int socket, Millis timeout) {
  pollfd fds[2] = {{event_, POLLIN, 0}, {socket, POLLIN, 0}};
  const int ready = ::poll(fds, socket >= 0 ? 2 : 1,
                           static_cast<int>(std::clamp<int64_t>(timeout.count(), 0, 3'600'000)));
  if (ready <= 0) return false;
  if ((fds[0].revents & POLLIN) != 0) {
    uint64_t count = 0;
    [[maybe_unused]] const auto read = ::read(event_, &count, sizeof(count));
  }
  return true;
}

}  // namespace lockstep::publisher
