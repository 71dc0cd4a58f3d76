#include "runner/group/session.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "platform/log/fault.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "postgres/cancel.h"

namespace lockstep::runner {
namespace {

constexpr Millis kCancelPatience{1'000};
constexpr Millis kCancelPause{100};
constexpr int kCancels = 10;

pubsub::ReceiverOptions ReceiverOptionsOf(const GroupContext& group,
                                          const std::string& subscription) {
  const GroupOptions& options = group.options;
  return {.subscription = subscription,
          .client_id = group.environment.instance,
          .max_outstanding_messages = options.max_outstanding_messages,
          .max_outstanding_bytes = options.max_outstanding_bytes,
          .ack_deadline = options.ack_deadline,
          .max_extension = options.max_extension,
          .streams = options.streams,
          .ack_timeout = options.ack_fence};
}

}  // namespace

Session::Session(GroupContext& group, state::GroupEpoch under)
    : group_(group),
      under_(std::move(under)),
      aside_(*this),
      receiver_(group.environment.transport.NewReceiver(
          ReceiverOptionsOf(group, under_.subscription), *this)),
      snapshots_(group.options.snapshots.empty()
                     ? nullptr
                     : group.environment.transport.NewReceiver(
                           ReceiverOptionsOf(group, group.options.snapshots), aside_)),
      acks_(*receiver_, snapshots_.get(), group.metrics, group.options.ack_fence),
      last_delivery_(Clock::System().Steady()) {
  for (int i = 0; i < group.options.lanes; ++i) {
    lanes_.push_back(std::make_unique<Lane>(
        i, group, under_, acks_, [this] { return InHand(); },
        [this](const absl::Status& end) { OnLaneEnded(end); }));
  }
}

absl::Status Session::Start(const std::vector<std::string>& release) {
  Release(release);
  for (const auto& lane : lanes_) RETURN_IF_ERROR(lane->Start());
  if (snapshots_) RETURN_IF_ERROR(snapshots_->Start());
  return receiver_->Start();
}

void Session::Release(const std::vector<std::string>& keys) {
  std::vector<std::vector<std::string>> shares(lanes_.size());
  for (const std::string& key : keys) shares[LaneFor(key)].push_back(key);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (!shares[i].empty()) lanes_[i]->Release(std::move(shares[i]));
  }
}

size_t Session::LaneFor(const std::string& ordering_key) {
  // A message without a key has no order to keep: it goes wherever there is room.
  if (ordering_key.empty()) return next_lane_++ % lanes_.size();
  return std::hash<std::string>()(ordering_key) % lanes_.size();
}

void Session::OnDeliveries(std::vector<pubsub::Delivery> deliveries) {
  const WallTime now = Clock::System().Now();
  group_.metrics.Count({.deliveries = static_cast<int64_t>(deliveries.size())});
  last_delivery_ = Clock::System().Steady();
  std::vector<std::vector<LaneQueue::Waiting>> shares(lanes_.size());
  for (pubsub::Delivery& delivery : deliveries) {
    const int64_t bytes = delivery.message.ByteSize();
    auto& share = shares[LaneFor(delivery.message.ordering_key)];
    share.push_back({std::move(delivery), now, bytes});
  }
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (!shares[i].empty()) lanes_[i]->Push(std::move(shares[i]));
  }
}

void Session::OnLeaseLost(std::vector<pubsub::AckToken> tokens) {
  for (const auto& lane : lanes_) lane->Drop(tokens);
}

void Session::OnStreamState(const absl::Status& state) {
  NoteState(state, under_.subscription, stream_state_);
}

void Session::NoteState(const absl::Status& state, const std::string& subscription,
                        std::string& text) {
  {
    std::lock_guard lock(mu_);
    const std::string before = std::exchange(text, state.ok() ? "" : std::string(MessageOf(state)));
    if (text == before) return;
  }
  last_delivery_ = Clock::System().Steady();  // what is quiet without a stream does not count
  if (state.ok()) {
    log::Info("the stream is open",
              {{"group", group_.options.name}, {"subscription", subscription}});
  } else {
    log::Fault("no stream",
               {{"group", group_.options.name}, {"subscription", subscription}, {"error", state}});
  }
}

void Session::Aside::OnDeliveries(std::vector<pubsub::Delivery> deliveries) {
  for (pubsub::Delivery& delivery : deliveries) delivery.token = MarkAside(delivery.token);
  session.OnDeliveries(std::move(deliveries));
}

void Session::Aside::OnLeaseLost(std::vector<pubsub::AckToken> tokens) {
  for (pubsub::AckToken& token : tokens) token = MarkAside(token);
  session.OnLeaseLost(std::move(tokens));
}

void Session::Aside::OnStreamState(const absl::Status& state) {
  session.NoteState(state, session.group_.options.snapshots, session.snapshots_state_);
}

void Session::OnLaneEnded(const absl::Status& end) {
  {
    std::lock_guard lock(mu_);
    // What halts the group counts more than an epoch that is over; of two the first.
    const bool halted = !end_.ok() && !state::IsStaleEpoch(end_);
    if (!halted && !end.ok() && !absl::IsCancelled(end)) end_ = end;
  }
  changed_.notify_all();
}

absl::Status Session::WaitFor(Millis time, const std::stop_token& stop) {
  std::unique_lock lock(mu_);
  changed_.wait_for(lock, stop, time, [&] { return !end_.ok(); });
  return end_;
}

bool Session::LanesDone() const {
  return std::all_of(lanes_.begin(), lanes_.end(), [](const auto& l) { return l->done(); });
}

void Session::Close() {
  receiver_->StopPulling();
  if (snapshots_) snapshots_->StopPulling();
  for (const auto& lane : lanes_) lane->Close();
}

void Session::Stop(Millis drain) {
  if (std::exchange(stopped_, true)) return;
  Close();
  {
    std::unique_lock lock(mu_);
    changed_.wait_for(lock, drain, [&] { return !end_.ok() || LanesDone(); });
  }
  for (const auto& lane : lanes_) lane->GiveUp();
  if (drain > Millis(0)) CancelStatements();
  for (const auto& lane : lanes_) lane->Join();
  receiver_->Stop();
  if (snapshots_) snapshots_->Stop();
}

// A statement that still hangs when the time is over is cancelled, so that its messages go back to
// the bus now and not when their leases run out.
void Session::CancelStatements() {
  {
    // What only waited has heard it by now.
    std::unique_lock lock(mu_);
    if (changed_.wait_for(lock, kCancelPause, [&] { return LanesDone(); })) return;
  }
  postgres::ConnectionOptions options = group_.connection();
  options.connect_timeout = options.statement_timeout = kCancelPatience;
  const auto connection = postgres::Connection::Open(options);
  if (!connection.ok()) return;  // then the statements are failing too
  log::Warning("statements hang and are cancelled", {{"group", group_.options.name}});
  // Again and again, for a cancel between two statements is lost.
  for (int tries = 0; tries < kCancels && !LanesDone(); ++tries) {
    for (const auto& lane : lanes_) {
      if (lane->done() || lane->backend_pid() == 0) continue;
      postgres::CancelStatement(**connection, lane->backend_pid());
    }
    std::unique_lock lock(mu_);
    changed_.wait_for(lock, kCancelPause, [&] { return LanesDone(); });
  }
}

std::string Session::stream_state() const {
  std::lock_guard lock(mu_);
  return stream_state_;
}

std::string Session::snapshots_state() const {
  std::lock_guard lock(mu_);
  return snapshots_ ? snapshots_state_ : "";
}

int64_t Session::InHand() const {
  int64_t sum = 0;
  for (const auto& lane : lanes_) sum += lane->in_hand();
  return sum;
}

bool Session::releasing() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const auto& l) { return l->releasing(); });
}

bool Session::DrainedFor(Millis quiet) const {
  return stream_state().empty() && snapshots_state().empty() && InHand() == 0 && !releasing() &&
         Clock::System().Steady() - last_delivery_.load() >= quiet;
}

std::vector<LaneStatus> Session::lanes() const {
  std::vector<LaneStatus> statuses;
  for (const auto& lane : lanes_) statuses.push_back(lane->status());
  return statuses;
}

}  // namespace lockstep::runner
