#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "pubsub/grpc/channel/channel.h"
#include "pubsub/grpc/receive/ack_rpc.h"
#include "pubsub/grpc/receive/ack_writer.h"
#include "pubsub/grpc/receive/flow_control.h"
#include "pubsub/grpc/receive/lease_keeper.h"
#include "pubsub/grpc/receive/receipts.h"
#include "pubsub/grpc/receive/stream_keeper.h"
#include "pubsub/grpc/receive/stream_state.h"
#include "pubsub/receiver.h"

namespace lockstep::pubsub::grpc_client {

// The port's Receiver, wired from its stages:
//
//   StreamKeeper (one per stream) ──> FlowControl ──> Receipts ──> LeaseKeeper ──> the user's sink
//   Acknowledge ──> LeaseKeeper, FlowControl ──> AckWriter ──> AckRpc
//   Release     ──> LeaseKeeper, FlowControl ──> AckWriter ──> AckRpc
class GrpcReceiver : public Receiver {
 public:
  GrpcReceiver(const ReceiverOptions& options, DeliverySink& sink, std::shared_ptr<Client> client);
  ~GrpcReceiver() override;

  absl::Status Start() override;
  void StopPulling() override;
  void Stop() override;
  void Acknowledge(std::vector<AckToken> tokens, Done done) override;
  void Release(std::vector<AckToken> tokens, Done done) override;

 private:
  enum class Life { kNew, kRunning, kDraining, kStopping, kStopped };

  PullStream::Request FirstRequest() const;
  void OnResponse(PullStream::Response& response);
  void HandOver(Receipts::Batch batch);
  void OnLost(std::vector<AckToken> tokens, LeaseKeeper::InHand in_hand);

  const ReceiverOptions options_;
  DeliverySink& sink_;
  const std::shared_ptr<Client> client_;
  FlowControl flow_;
  StreamState state_;
  GrpcAckRpc rpc_;
  LeaseKeeper leases_;
  Receipts receipts_;
  AckWriter acks_;
  AckWriter releases_;
  std::atomic<bool> exactly_once_ = false;  // as the last response said

  std::mutex mu_;
  std::condition_variable stopped_;
  Life life_ = Life::kNew;
  std::vector<std::unique_ptr<StreamKeeper>> streams_;  // fixed once running
};

}  // namespace lockstep::pubsub::grpc_client
