#include <mutex>
#include <optional>
#include <utility>

#include "emulator/core/broker.h"
#include "emulator/wire/field_rules.h"
#include "emulator/wire/names.h"
#include "emulator/wire/proto_time.h"
#include "platform/status.h"

namespace lockstep::emulator {

namespace pb = google::pubsub::v1;

namespace {

constexpr auto kLifetime = std::chrono::hours(7 * 24);
constexpr auto kShortestLifetime = std::chrono::hours(1);

}  // namespace

absl::StatusOr<pb::Snapshot> Broker::CreateSnapshot(const pb::CreateSnapshotRequest& request) {
  RETURN_IF_ERROR(RefuseUnsupported(request, {"name", "subscription", "labels"}));
  RETURN_IF_ERROR(ResourceName::Parse(request.name(), "snapshots").status());
  RETURN_IF_ERROR(CheckLabels(request.labels()));
  ASSIGN_OR_RETURN(const Attached attached, FindAttached(request.subscription()));
  auto snapshot = std::make_shared<KeptSnapshot>();
  snapshot->topic = attached.topic;
  // First the hold, then the state: what is published in between is in both, and harmless.
  snapshot->hold = attached.topic->Hold();
  auto state = attached.subscription->TakeSnapshot();
  const auto refuse = [&](absl::Status why) {
    attached.topic->Release(snapshot->hold);
    return why;
  };
  if (!state.ok()) return refuse(state.status());
  snapshot->state = *std::move(state);

  // It lives for 7 days from its oldest unacked message on.
  const WallTime now = clock_.Now();
  const WallTime oldest =
      snapshot->state.unacked.empty() ? now : snapshot->state.unacked.front()->publish_time;
  const WallTime expires = oldest + kLifetime;
  if (expires < now + kShortestLifetime) {
    return refuse(FailedPrecondition(
        "The backlog of {} is too old: its snapshot would expire within an hour.",
        request.subscription()));
  }
  pb::Snapshot& proto = snapshot->proto;
  proto.set_name(request.name());
  proto.set_topic(attached.subscription->Config().topic());
  *proto.mutable_expire_time() = ToProto(expires);
  *proto.mutable_labels() = request.labels();
  const pb::Snapshot created = proto;
  {
    std::unique_lock lock(mu_);
    if (!snapshots_.emplace(request.name(), snapshot).second) {
      lock.unlock();
      return refuse(MakeStatus(absl::StatusCode::kAlreadyExists,
                               "Resource already exists in the project (resource={}).",
                               request.name()));
    }
  }
  const uint64_t hold = snapshot->hold;
  timekeeper_->At(clock_.Steady() + std::chrono::ceil<Millis>(expires - now),
                  [this, name = request.name(), topic = snapshot->topic, hold] {
                    const auto found = FindSnapshot(name);
                    const bool same =
                        found.ok() && (*found)->topic == topic && (*found)->hold == hold;
                    if (same) (void)DeleteSnapshot(name);
                  });
  return created;
}

absl::StatusOr<Broker::SnapshotPtr> Broker::FindSnapshot(const std::string& name) const {
  RETURN_IF_ERROR(ResourceName::Parse(name, "snapshots").status());
  std::shared_lock lock(mu_);
  const auto it = snapshots_.find(name);
  if (it == snapshots_.end()) return NotFound("Resource not found (resource={}).", name);
  return it->second;
}

absl::StatusOr<pb::Snapshot> Broker::GetSnapshot(const std::string& name) {
  ASSIGN_OR_RETURN(const SnapshotPtr snapshot, FindSnapshot(name));
  return snapshot->proto;
}

absl::StatusOr<pb::Snapshot> Broker::UpdateSnapshot(const pb::UpdateSnapshotRequest& request) {
  ASSIGN_OR_RETURN(const SnapshotPtr snapshot, FindSnapshot(request.snapshot().name()));
  auto changed = std::make_shared<KeptSnapshot>(*snapshot);
  RETURN_IF_ERROR(
      ApplyMask(request.update_mask(), request.snapshot(), {"labels"}, &changed->proto));
  RETURN_IF_ERROR(CheckLabels(changed->proto.labels()));
  const pb::Snapshot answer = changed->proto;
  std::unique_lock lock(mu_);
  const auto it = snapshots_.find(answer.name());
  if (it == snapshots_.end()) return NotFound("Resource not found (resource={}).", answer.name());
  it->second = std::move(changed);
  return answer;
}

absl::StatusOr<Page<pb::Snapshot>> Broker::ListSnapshots(const std::string& project,
                                                         const PageRequest& page) {
  RETURN_IF_ERROR(CheckProject(project));
  std::shared_lock lock(mu_);
  return ListPage<pb::Snapshot>(
      snapshots_, project + "/snapshots/", page,
      [](const SnapshotPtr& snapshot) { return std::optional<pb::Snapshot>(snapshot->proto); });
}

absl::Status Broker::DeleteSnapshot(const std::string& name) {
  RETURN_IF_ERROR(ResourceName::Parse(name, "snapshots").status());
  SnapshotPtr snapshot;
  {
    std::unique_lock lock(mu_);
    const auto it = snapshots_.find(name);
    if (it == snapshots_.end()) return NotFound("Resource not found (resource={}).", name);
    snapshot = std::move(it->second);
    snapshots_.erase(it);
  }
  snapshot->topic->Release(snapshot->hold);
  return absl::OkStatus();
}

absl::Status Broker::Seek(const pb::SeekRequest& request) {
  ASSIGN_OR_RETURN(const Attached attached, FindAttached(request.subscription()));
  switch (request.target_case()) {
    case pb::SeekRequest::kTime: {
      const WallTime time = FromProto(request.time());
      return attached.subscription->SeekTo(time, attached.topic->KeptSince(time));
    }
    case pb::SeekRequest::kSnapshot: {
      ASSIGN_OR_RETURN(const SnapshotPtr snapshot, FindSnapshot(request.snapshot()));
      if (snapshot->topic != attached.topic) {
        return FailedPrecondition("The snapshot {} is of another topic than {}.",
                                  request.snapshot(), request.subscription());
      }
      std::vector<MessagePtr> refill = snapshot->state.unacked;
      for (MessagePtr& message : attached.topic->KeptFrom(snapshot->state.end)) {
        refill.push_back(std::move(message));
      }
      return attached.subscription->SeekTo(snapshot->state, refill);
    }
    case pb::SeekRequest::TARGET_NOT_SET:
      break;
  }
  return InvalidArgument("Seek needs a time or a snapshot.");
}

}  // namespace lockstep::emulator
