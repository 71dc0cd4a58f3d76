#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <mutex>

#include "emulator/core/broker.h"
#include "emulator/core/timekeeper.h"
#include "emulator/faults/faults.h"
#include "google/pubsub/v1/pubsub.pb.h"

namespace lockstep::emulator {

// One Pull that waits for a first message, a while at most. Any thread may Wake it; it frees itself
// in OnDone.
class Pull : public grpc::ServerUnaryReactor,
             public Wakeable,
             public std::enable_shared_from_this<Pull> {
 public:
  static grpc::ServerUnaryReactor* Begin(Broker* broker, Faults* faults, Timekeeper* timekeeper,
                                         const pb::PullRequest* request,
                                         pb::PullResponse* response);

  Pull(Faults* faults, const pb::PullRequest* request, pb::PullResponse* response);

  void Wake() override { Try(false); }

 private:
  void OnCancel() override { End(absl::CancelledError("The client is gone.")); }
  void OnDone() override { const auto last = std::move(self_); }

  absl::Status Open(Broker* broker);
  void Try(bool last);
  void End(const absl::Status& status);
  // Detaches, then answers: a client that has its answer must not find us among the consumers.
  // REQUIRES: called once, by whoever set ended_, without the lock.
  void Leave(const absl::Status& status);

  Faults* const faults_;
  // gRPC's, until we have answered: only while not ended_.
  const pb::PullRequest* const request_;
  pb::PullResponse* const response_;
  const bool return_immediately_;
  std::shared_ptr<Pull> self_;  // until OnDone: gRPC holds a bare pointer
  std::shared_ptr<Subscription> subscription_;
  Consumer* consumer_ = nullptr;

  std::mutex mu_;
  bool ended_ = false;
};

}  // namespace lockstep::emulator
