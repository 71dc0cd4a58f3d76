#include <unordered_set>
#include <utility>

#include "emulator/core/broker.h"
#include "emulator/wire/field_rules.h"
#include "emulator/wire/page.h"
#include "emulator/wire/proto_time.h"

namespace lockstep::emulator {

absl::StatusOr<pb::Snapshot> Broker::CreateSnapshot(const pb::CreateSnapshotRequest& request) {
  std::string name = request.name();
  if (name.empty()) {
    ASSIGN_OR_RETURN(const auto beside,
                     ResourceName::Parse(request.subscription(), "subscriptions"));
    name = AssignName(beside, "snapshots");
  }
  RETURN_IF_ERROR(RefuseUnsupported(request, {"name", "subscription", "labels"}));
  RETURN_IF_ERROR(ResourceName::Parse(name, "snapshots").status());
  RETURN_IF_ERROR(CheckLabels(request.labels()));
  std::scoped_lock changes(changes_);
  ASSIGN_OR_RETURN(const Attached attached, FindAttached(request.subscription()));
  if (FindSnapshot(name).ok()) return ResourceExists(name);
  // First the hold, then the state: what is published in between is in both, and harmless.
  const uint64_t hold = attached.topic->Hold();
  const auto refuse = [&](absl::Status why) {
    attached.topic->Release(hold);
    return why;
  };
  auto state = attached.subscription->TakeSnapshot();
  if (!state.ok()) return refuse(state.status());

  // It lives for 7 days from its oldest unacked message on.
  const WallTime now = clock_.Now();
  const WallTime oldest = state->unacked.empty() ? now : state->unacked.front()->publish_time;
  const WallTime expires = oldest + std::chrono::hours(7 * 24);
  if (expires < now + std::chrono::hours(1)) {
    return refuse(FailedPrecondition(
        "The backlog of {} is too old: its snapshot would expire within an hour.",
        request.subscription()));
  }
  pb::Snapshot proto;
  proto.set_name(name);
  proto.set_topic(attached.subscription->Config().topic());
  *proto.mutable_expire_time() = ToProto(expires);
  *proto.mutable_labels() = request.labels();
  const SnapshotPtr snapshot =
      std::make_shared<KeptSnapshot>(KeptSnapshot{proto, attached.topic, hold, *std::move(state)});
  if (journal_ != nullptr) {
    absl::Status kept = journal_->SaveSnapshot(proto, attached.topic->number(), snapshot->state.end,
                                               snapshot->state.unacked);
    if (!kept.ok()) return refuse(kept);
  }
  RETURN_IF_ERROR(Insert(name, snapshot, &snapshots_));
  ExpireSnapshot(*snapshot);
  return proto;
}

void Broker::ExpireSnapshot(const KeptSnapshot& snapshot) {
  const auto left = FromProto(snapshot.proto.expire_time()) - clock_.Now();
  pb::DeleteSnapshotRequest expiry;
  expiry.set_snapshot(snapshot.proto.name());
  timekeeper_->At(clock_.Steady() + std::chrono::ceil<Millis>(left),
                  [this, expiry, topic = snapshot.topic, hold = snapshot.hold] {
                    const auto found = FindSnapshot(expiry.snapshot());
                    const bool same =
                        found.ok() && (*found)->topic == topic && (*found)->hold == hold;
                    if (same) (void)DeleteSnapshot(expiry);
                  });
}

absl::StatusOr<pb::Snapshot> Broker::GetSnapshot(const pb::GetSnapshotRequest& request) {
  ASSIGN_OR_RETURN(const SnapshotPtr snapshot, FindSnapshot(request.snapshot()));
  return snapshot->proto;
}

absl::StatusOr<pb::Snapshot> Broker::UpdateSnapshot(const pb::UpdateSnapshotRequest& request) {
  std::scoped_lock changes(changes_);
  ASSIGN_OR_RETURN(const SnapshotPtr snapshot, FindSnapshot(request.snapshot().name()));
  auto changed = std::make_shared<KeptSnapshot>(*snapshot);
  RETURN_IF_ERROR(
      ApplyMask(request.update_mask(), request.snapshot(), {"labels"}, &changed->proto));
  RETURN_IF_ERROR(CheckLabels(changed->proto.labels()));
  if (journal_ != nullptr) {
    RETURN_IF_ERROR(journal_->SaveSnapshot(changed->proto, changed->topic->number(),
                                           changed->state.end, changed->state.unacked));
  }
  std::unique_lock lock(mu_);
  const auto it = snapshots_.find(changed->proto.name());
  if (it == snapshots_.end()) return ResourceNotFound(changed->proto.name());
  it->second = changed;
  return changed->proto;
}

absl::StatusOr<pb::ListSnapshotsResponse> Broker::ListSnapshots(
    const pb::ListSnapshotsRequest& request) {
  RETURN_IF_ERROR(CheckProject(request.project()));
  return ListPage(
      request, Copy(snapshots_), request.project() + "/snapshots/",
      [](const SnapshotPtr& snapshot) { return snapshot->proto; },
      &pb::ListSnapshotsResponse::mutable_snapshots);
}

absl::Status Broker::DeleteSnapshot(const pb::DeleteSnapshotRequest& request) {
  std::scoped_lock changes(changes_);
  if (journal_ != nullptr) RETURN_IF_ERROR(journal_->ForgetSnapshot(request.snapshot()));
  ASSIGN_OR_RETURN(const SnapshotPtr snapshot,
                   Remove(request.snapshot(), "snapshots", &snapshots_));
  snapshot->topic->Release(snapshot->hold);
  return absl::OkStatus();
}

absl::Status Broker::Seek(const pb::SeekRequest& request) {
  ASSIGN_OR_RETURN(const Attached attached, FindAttached(request.subscription()));
  switch (request.target_case()) {
    case pb::SeekRequest::kTime: {
      const WallTime time = FromProto(request.time());
      return attached.subscription->Seek(
          attached.topic->Retained(time),
          [time](const Message& message) { return message.publish_time >= time; });
    }
    case pb::SeekRequest::kSnapshot: {
      ASSIGN_OR_RETURN(const SnapshotPtr snapshot, FindSnapshot(request.snapshot()));
      if (snapshot->topic != attached.topic) {
        return FailedPrecondition("The snapshot {} is of another topic than {}.",
                                  request.snapshot(), request.subscription());
      }
      const uint64_t end = snapshot->state.end;
      std::vector<MessagePtr> refill = snapshot->state.unacked;
      std::unordered_set<uint64_t> unacked;
      for (const MessagePtr& message : refill) unacked.insert(message->sequence);
      for (MessagePtr& message : attached.topic->Kept(end)) refill.push_back(std::move(message));
      return attached.subscription->Seek(refill, [&](const Message& message) {
        return message.sequence >= end || unacked.contains(message.sequence);
      });
    }
    case pb::SeekRequest::TARGET_NOT_SET:
      break;
  }
  return InvalidArgument("Seek needs a time or a snapshot.");
}

}  // namespace lockstep::emulator
