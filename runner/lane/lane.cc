#include "runner/lane/lane.h"

#include "platform/boot_time.h"
#include "runner/handlers/lane_calls.h"

namespace lockstep::runner {
namespace {

constexpr Millis kHeldLook{20};

// Not an event that has an attribute of that name: it would be acked unapplied.
bool IsHeartbeat(const pubsub::Message& message) {
  return message.attributes.contains(kHeartbeatAttribute) &&
         !message.attributes.contains("event_id");
}

// The messages of one batch, sorted by what is to be done with them.
struct Prepared {
  std::vector<Inbound> events;                // to be applied, or poison
  std::vector<pubsub::AckToken> to_ack_only;  // heartbeats, and what was published before a Seek
};

// Turns deliveries into events: parses, decodes, maps. With several lanes one decodes while another
// waits for its commit.
Prepared Prepare(std::vector<LaneQueue::Waiting> deliveries, GroupContext& group,
                 const state::GroupEpoch& under) {
  Prepared prepared;
  prepared.events.reserve(deliveries.size());
  for (auto& [delivery, received_at, bytes] : deliveries) {
    const bool heartbeat = IsHeartbeat(delivery.message);
    const bool aside = IsAside(delivery.token);
    if (heartbeat && !aside) group.metrics.Heartbeat(delivery.publish_time);
    // (What a reset leaves out is of the subscription that it seeks.)
    const bool left_out = !aside && under.skip_before && delivery.publish_time < *under.skip_before;
    if (heartbeat || left_out) {
      prepared.to_ack_only.push_back(std::move(delivery.token));
      continue;
    }
    Inbound& item = prepared.events.emplace_back(std::move(delivery), received_at);
    item.aside = aside;
    if (!item.poison) MapEvent(*group.projector, item);
  }
  return prepared;
}

}  // namespace

Lane::Lane(int index, GroupContext& group, const state::GroupEpoch& under, AckStage& acks,
           std::function<int64_t()> all_in_hand, std::function<void(const absl::Status&)> on_end)
    : index_(index),
      group_(group),
      under_(under),
      acks_(acks),
      all_in_hand_(std::move(all_in_hand)),
      on_end_(std::move(on_end)),
      recorder_(index, group, under, acks),
      connections_(group.connection(), fmt::format("{} lane {}", group.options.name, index)) {
  if (RestoreWitness* const witness = group_.offset_witness()) {
    connections_.accept = [this, witness](postgres::Connection& connection) {
      return witness->Accept(connection, under_, index_);
    };
  }
}

Lane::~Lane() {
  GiveUp();
  Join();
}

absl::Status Lane::Start() {
  return thread_.Start([this] { Run(); });
}

void Lane::Close() {
  queue_.Close();
  closing_.request_stop();
}

void Lane::GiveUp() {
  thread_.RequestStop();
  closing_.request_stop();
  acks_.GiveBack(queue_.Abandon());
}

void Lane::Run() {
  const GroupOptions& options = group_.options;
  LaneCalls calls(group_.handlers,
                  {.tries = options.transient_tries + options.max_attempts,
                   .endpoint_tries = options.transient_tries},
                  thread_.stop_token());
  FailurePolicy policy(group_.batch, connections_, under_, {group_.environment.instance, index_},
                       options, group_.budget, recorder_, thread_.stop_token(), &calls,
                       closing_.get_token());
  absl::Status end;
  while (end.ok()) {
    if (!held_.empty() && queue_.idle() && !SleepUnlessStopped(thread_.stop_token(), kHeldLook)) {
      end = Work({}, policy);  // they may be admitted by now
      continue;
    }
    // How long to gather is asked when there is something: before a rest it says nothing of then.
    if (!queue_.Await()) break;
    if (const auto due = queue_.TakeDue(); !due.empty()) {
      end = policy.Release(due);
      queue_.Done();
      continue;
    }
    auto deliveries = queue_.Take(options.max_batch, options.max_batch_bytes,
                                  Gathering::For(options, all_in_hand_()));
    if (deliveries.empty()) continue;  // they were lost while they gathered
    end = Work(std::move(deliveries), policy);
    queue_.Done();
  }
  for (Inbound& item : held_) acks_.GiveBack({std::exchange(item.token, {})});
  done_ = true;
  on_end_(end);
}

absl::Status Lane::Work(std::vector<LaneQueue::Waiting> deliveries, FailurePolicy& policy) {
  Prepared prepared = Prepare(std::move(deliveries), group_, under_);
  std::vector<Inbound> held = std::exchange(held_, {});
  std::vector<Inbound*> items;
  items.reserve(held.size() + prepared.events.size());
  for (Inbound& item : held) items.push_back(&item);  // they came before
  for (Inbound& item : prepared.events) items.push_back(&item);
  if (group_.environment.admission != nullptr) Hold(items);
  const absl::Status end = items.empty() ? absl::OkStatus() : policy.Process(items);
  if (end.ok()) return AckUnapplied(std::move(prepared.to_ack_only));
  acks_.GiveBack(std::move(prepared.to_ack_only));
  // Those that were acked or given back before have lost their token.
  std::erase_if(items, [](const Inbound* item) { return item->token.empty(); });
  recorder_.OnGivenBack(items);
  return end;
}

void Lane::Hold(std::vector<Inbound*>& items) {
  const auto connection = connections_.Try();
  std::vector<bool> admitted(items.size(), false);  // nobody can be asked: they wait
  if (connection.ok()) admitted = group_.environment.admission(**connection, items);
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
absl::Status Lane::AckUnapplied(std::vector<pubsub::AckToken> tokens) {
  if (tokens.empty()) return absl::OkStatus();
  // Waits for a database that is down: given back, they would come again at once.
  const auto connection = connections_.Get(thread_.stop_token());
  const SteadyTime asked = BootTime();
  const absl::Status current =
      connection.ok() ? group_.batch.Confirm(**connection, under_) : connection.status();
  if (current.ok()) {
    acks_.Ack(std::move(tokens), asked);
  } else {
    acks_.GiveBack(std::move(tokens));
  }
  return state::IsStaleEpoch(current) ? current : absl::OkStatus();
}

LaneStatus Lane::status() const {
  LaneStatus status = recorder_.status();
  queue_.Fill(status);
  return status;
}

}  // namespace lockstep::runner
