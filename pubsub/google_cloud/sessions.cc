#include "pubsub/google_cloud/sessions.h"

#include <utility>

#include "platform/status.h"
#include "pubsub/google_cloud/library.h"

namespace lockstep::pubsub::google_cloud {

namespace gc = ::google::cloud;

Sessions::Sessions(gc::pubsub::Subscriber subscriber, int count, Events events)
    : subscriber_(std::move(subscriber)),
      events_(std::move(events)),
      sessions_(static_cast<size_t>(count)) {}

bool Sessions::StartMissing() {
  bool all = true;
  for (size_t i = 0; i < sessions_.size(); ++i) {
    if (sessions_[i].has_value() || cancelled_) continue;
    all = false;
    started_ = true;
    {
      std::scoped_lock lock(mu_);
      ++open_;
    }
    auto ended = subscriber_.Subscribe(gc::pubsub::ExactlyOnceApplicationCallback(
        [this](gc::pubsub::Message message, gc::pubsub::ExactlyOnceAckHandler handler) {
          events_.on_message(std::move(message), std::move(handler));
        }));
    sessions_[i] = ended.then([this, i](gc::future<gc::Status> status) {
      events_.post([this, i, end = FromCloud(status.get())] { OnEnd(i, end); });
    });
  }
  return all;
}

void Sessions::OnEnd(size_t index, const absl::Status& status) {
  if (!cancelled_) {
    sessions_[index].reset();
    events_.on_end(status.ok() ? Unavailable("the session ended") : status);
  }
  std::scoped_lock lock(mu_);
  if (--open_ == 0) ended_.notify_all();
}

void Sessions::Cancel() {
  cancelled_ = true;
  for (auto& session : sessions_) {
    if (session.has_value()) session->cancel();
  }
}

bool Sessions::AwaitEnd(Millis at_most) {
  std::unique_lock lock(mu_);
  return ended_.wait_for(lock, at_most, [this] { return open_ == 0; });
}

}  // namespace lockstep::pubsub::google_cloud
