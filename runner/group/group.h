#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "platform/daemon/service.h"
#include "platform/daemon/service_thread.h"
#include "runner/group/group_start.h"
#include "runner/group/session.h"
#include "runner/lane/group_context.h"
#include "runner/seek/checkpoint_taker.h"
#include "runner/status/group_status.h"
#include "state/groups/instances.h"

namespace lockstep::runner {

// One consumer group. Its thread brings up a session, watches its epoch, and begins anew when the
// epoch changed or when what stood in the way is gone. Groups know nothing of each other: one that
// halts leaves the others running. Stop drains.
class Group : public Service {
 public:
  Group(GroupOptions options, std::unique_ptr<projections::Projector> projector,
        const GroupEnvironment& environment);
  ~Group() override { Stop(); }

  absl::Status Start() override;
  void Stop() override;

  // Follows `fresh` from the next round on: what is in hand is finished first. From any thread.
  void Reconfigure(const FollowedOptions& fresh);

  GroupStatus status() const;
  // Connected, nothing in hand, and nothing came for so long: what --once waits for.
  bool DrainedFor(Millis quiet) const;
  const std::string& name() const { return context_.options.name; }
  // How long an event is remembered: what the last session began with, for its subscription was
  // asked whether that is long enough. 0 = there was none yet.
  Millis inbox_retention() const;

 private:
  void Run();
  void RunSession(const ReadyToRun& ready);
  bool EpochChanged(const state::GroupEpoch& under, int64_t before, Session& session);
  void ReleaseWhatWasLeft(postgres::Connection& connection, const state::GroupEpoch& under,
                          Session& session);
  state::InstanceReport Report(int64_t before);
  void FollowOptions();
  bool HasFreshOptions() const;
  std::shared_ptr<Session> session() const;
  void SetSession(std::shared_ptr<Session> session);
  void SetUnder(postgres::Connection& connection, const ReadyToRun& ready);
  void NoteTurn();
  void NoteDatabase(const absl::Status& answer);
  void TellThatItAnswers();
  void SetState(GroupState state, const std::string& reason);
  // UNAVAILABLE passes by itself, CANCELLED is an operator's pause; everything else halts the
  // group.
  void Wait(const absl::Status& obstacle);
  void TellThatItWaits();

  GroupContext context_;
  const state::Instances instances_;
  CheckpointTaker checkpoints_;
  ConnectionSource connections_;

  mutable std::mutex mu_;
  // As far as the group's thread, which alone writes it, knows it. (Of caught_up whoever asks for
  // the status takes note.)
  mutable GroupStatus status_;
  bool told_of_loss_ = false;  // of the database
  Millis inbox_retention_{0};
  std::shared_ptr<Session> session_;  // shared with status(), which may look while it ends
  std::optional<FollowedOptions> fresh_options_;

  // The group's thread's own.
  bool for_good_ = false;  // halted until a restart
  SteadyTime next_look_for_left_;

  ServiceThread thread_;
};

}  // namespace lockstep::runner
