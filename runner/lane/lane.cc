#include "runner/lane/lane.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "platform/defect.h"
#include "platform/status.h"
#include "runner/lane/admission.h"
#include "runner/lane/lane_log.h"

namespace lockstep::runner {
namespace {

constexpr Millis kHeldLook{20};

}  // namespace

Lane::Lane(int index, const LaneParts& parts, Ended ended)
    : index_(index),
      parts_(parts),
      ended_(std::move(ended)),
      connections_(parts.connection, fmt::format("{} lane {}", parts.options.name, index)) {
  if (parts_.witness != nullptr) {
    connections_.accept = [this](postgres::Connection& connection) {
      return !parts_.witness->WentBack(connection);
    };
  }
}

Lane::~Lane() {
  GiveUp();
  Join();
}

void Lane::Start() {
  thread_ = std::thread([this] { Run(); });
}

// What arrives after the lane was given up goes back at once: the receiver still listens.
void Lane::Push(std::vector<LaneQueue::Waiting> deliveries) {
  parts_.acks.GiveBack(queue_.Push(std::move(deliveries)));
}

void Lane::Release(std::vector<std::string> keys) {
  due_ += static_cast<int64_t>(keys.size());
  queue_.Release(std::move(keys));
}

void Lane::Drop(const std::vector<pubsub::AckToken>& lost) {
  parts_.acks.GiveBack(queue_.DropKeysOf(lost));
}

void Lane::Close() {
  closing_ = true;
  queue_.Close();
}

void Lane::GiveUp() {
  give_up_.request_stop();
  parts_.acks.GiveBack(queue_.Abandon());
}

void Lane::Join() {
  if (thread_.joinable()) thread_.join();
}

void Lane::Run() {
  FailurePolicy policy(parts_.batch, connections_, parts_.under, {parts_.instance, index_},
                       {.max_attempts = parts_.options.max_attempts,
                        .transient_tries = parts_.options.transient_tries,
                        .to_pubsub = parts_.options.dead_letter == DeadLetterTo::kPubsub},
                       parts_.budget, *this, give_up_.get_token());
  Verdict verdict = Verdict::kDone;
  while (verdict == Verdict::kDone) {
    if (!held_.empty() && queue_.size() == 0 && !closing_ &&
        !SleepUnlessStopped(give_up_.get_token(), kHeldLook)) {
      verdict = Work({}, policy);  // they may be admitted by now
      continue;
    }
    // How long to gather is asked when there is something: before a rest it says nothing of then.
    if (!queue_.Await()) break;
    if (const auto due = queue_.TakeDue(); !due.empty()) {
      verdict = policy.Release(due);
      due_ -= static_cast<int64_t>(due.size());
      continue;
    }
    auto deliveries = queue_.Take(parts_.options.max_batch, parts_.options.max_batch_bytes,
                                  Gathering::For(parts_.options, parts_.in_hand()));
    if (deliveries.empty()) continue;  // they were lost while they gathered
    NoteBatch(deliveries);
    verdict = Work(std::move(deliveries), policy);
    NoteBatch({});
  }
  for (Inbound& item : held_) parts_.acks.GiveBack({std::exchange(item.token, {})});
  if (connections_.refused()) verdict = Verdict::kStaleEpoch;  // the group looks into it
  done_ = true;
  ended_(verdict, policy.halt_reason());
}

void Lane::NoteBatch(const std::vector<LaneQueue::Waiting>& deliveries) {
  in_batch_ = static_cast<int64_t>(deliveries.size());
  std::lock_guard lock(mu_);
  batch_oldest_.reset();
  if (deliveries.empty()) return;
  batch_oldest_ = {deliveries.front().delivery.publish_time, deliveries.front().received_at};
}

Verdict Lane::Work(std::vector<LaneQueue::Waiting> deliveries, FailurePolicy& policy) {
  Prepared prepared = parts_.intake.Prepare(std::move(deliveries), parts_.under);
  std::vector<Inbound> held = std::exchange(held_, {});
  std::vector<Inbound*> items;
  items.reserve(held.size() + prepared.events.size());
  for (Inbound& item : held) items.push_back(&item);  // they came before
  for (Inbound& item : prepared.events) items.push_back(&item);
  if (parts_.admission != nullptr) Hold(items);
  if (defect::On("ack-before-commit")) {
    std::vector<pubsub::AckToken> early;
    for (const Inbound* item : items) early.push_back(item->token);
    parts_.acks.Ack(std::move(early), Clock::System().Steady());
  }
  const Verdict verdict = items.empty() ? Verdict::kDone : policy.Process(items);
  if (verdict == Verdict::kDone) return AckUnapplied(std::move(prepared.to_ack_only));
  parts_.acks.GiveBack(std::move(prepared.to_ack_only));
  // Those that were acked or given back before have lost their token.
  std::erase_if(items, [](const Inbound* item) { return item->token.empty(); });
  OnGivenBack(items);
  return verdict;
}

void Lane::Hold(std::vector<Inbound*>& items) {
  const auto connection = connections_.Try();
  if (!connection.ok()) return;  // nothing can be applied either
  const std::vector<bool> admitted = parts_.admission->Admit(**connection, items);
  size_t kept = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (admitted[i]) {
      items[kept++] = items[i];
    } else {
      held_.push_back(std::move(*items[i]));
    }
  }
  items.resize(kept);
}

// Nothing of these commits, so the epoch is asked for: under another one they may be wanted.
Verdict Lane::AckUnapplied(std::vector<pubsub::AckToken> tokens) {
  if (tokens.empty()) return Verdict::kDone;
  // Waits for a database that is down: given back, they would come again at once.
  postgres::Connection* const connection = connections_.Get(give_up_.get_token());
  const SteadyTime asked = Clock::System().Steady();
  const absl::Status current = connection != nullptr
                                   ? parts_.batch.Confirm(*connection, parts_.under)
                                   : absl::CancelledError("the lane ends");
  if (current.ok()) {
    parts_.acks.Ack(std::move(tokens), asked);
    return Verdict::kDone;
  }
  parts_.acks.GiveBack(std::move(tokens));
  return state::IsStaleEpoch(current) ? Verdict::kStaleEpoch : Verdict::kDone;
}

void Lane::OnCommitted(std::span<Inbound* const> items, const BatchResult& result) {
  const WallTime now = Clock::System().Now();
  const auto took = Clock::System().Steady() - result.began;
  std::vector<pubsub::AckToken> tokens;
  tokens.reserve(items.size());
  const Inbound* newest = nullptr;
  for (size_t i = 0; i < items.size(); ++i) {
    Inbound& item = *items[i];
    LogEnding(parts_.options.name, item, result.endings[i]);
    tokens.push_back(std::exchange(item.token, {}));
    if (newest == nullptr || newest->publish_time < item.publish_time) newest = &item;
  }
  LogUnparked(parts_.options.name, result);
  parts_.acks.Ack(std::move(tokens), result.commit_began);
  parts_.metrics.Committed(items, result, now, std::chrono::duration<double>(took).count());
  {
    std::lock_guard lock(mu_);
    last_commit_ = now;  // of parked events that were released, too
    last_error_.clear();
  }
  if (newest == nullptr) return;
  if (parts_.witness != nullptr) {
    parts_.witness->Committed(parts_.under, index_, {newest->publish_time, newest->message_id});
  }
  parts_.metrics.OffsetSaved(true);
  const auto lag = std::chrono::duration_cast<Millis>(now - newest->publish_time);
  parts_.metrics.OffsetLag(lag);
  LogOffsetSaved(parts_.options.name, *newest, lag, parts_.instance);
  std::lock_guard lock(mu_);
  last_message_id_ = newest->message_id.value();
}

void Lane::OnGivenBack(std::span<Inbound* const> items) {
  std::vector<pubsub::AckToken> tokens;
  for (Inbound* item : items) {
    if (item->poison) LogGivenBack(parts_.options.name, *item);
    tokens.push_back(std::exchange(item->token, {}));
  }
  parts_.acks.GiveBack(std::move(tokens));
}

void Lane::OnFailure(const absl::Status& status, std::span<Inbound* const> items) {
  parts_.metrics.Failed();
  if (!items.empty()) parts_.metrics.OffsetSaved(false);  // a release saves none
  if (state::IsStaleEpoch(status)) return;
  LogFailure(parts_.options.name, index_, status, items);
  std::lock_guard lock(mu_);
  last_error_ = MessageOf(status);
}

LaneStatus Lane::status() const {
  LaneStatus status{
      .lane = index_, .queued = static_cast<int64_t>(queue_.size()), .in_batch = in_batch_};
  const auto waiting = queue_.oldest();
  std::lock_guard lock(mu_);
  // What is being written came before what waits.
  if (const auto& oldest = batch_oldest_ ? batch_oldest_ : waiting) {
    status.oldest_published = oldest->published;
    status.oldest_received = oldest->received;
  }
  status.last_error = last_error_;
  status.last_commit = last_commit_;
  status.last_message_id = last_message_id_;
  return status;
}

}  // namespace lockstep::runner
