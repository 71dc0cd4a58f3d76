#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <mutex>
#include <optional>

#include "emulator/core/broker.h"
#include "emulator/core/timekeeper.h"
#include "emulator/faults/faults.h"
#include "google/pubsub/v1/pubsub.pb.h"

namespace lockstep::emulator {

// One StreamingPull. gRPC's threads call the On… functions, any thread may Wake or CloseWith it.
// At most one response is on its way: it takes messages only when it can send them, so a client
// that doesn't read holds one response's memory and no more. It ends by half-close (OK), by
// cancellation, or when its subscription, the server or a fault ends it; it frees itself in OnDone.
class StreamingPull : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                      public Wakeable,
                      public OpenStream,
                      public std::enable_shared_from_this<StreamingPull> {
 public:
  StreamingPull(Broker* broker, Faults* faults, Timekeeper* timekeeper)
      : broker_(broker), faults_(faults), timekeeper_(timekeeper) {}

  // The reactor to hand to gRPC.
  static StreamingPull* Begin(Broker* broker, Faults* faults, Timekeeper* timekeeper);

  void Wake() override { Pump(); }
  void CloseWith(const absl::Status& reason) override;
  StreamInfo Info() const override;

 private:
  using Request = pb::StreamingPullRequest;
  using Response = pb::StreamingPullResponse;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override { CloseWith(absl::CancelledError("The client is gone.")); }
  void OnDone() override { const auto last = std::move(self_); }

  void HandleIncoming();
  absl::Status Handle(Request request);
  absl::Status Open(const Request& request);
  absl::Status HandleAcks(const Request& request);
  void NoteConfirmations(const Subscription::AckIds& ids);
  // Sends the next response if there is something to send and nothing on its way; or ends.
  void Pump();
  // Whether something was sent.
  bool SendNext();
  void ReadMore();

  Broker* const broker_;
  Faults* const faults_;
  Timekeeper* const timekeeper_;
  std::shared_ptr<StreamingPull> self_;  // until OnDone: gRPC holds a bare pointer
  grpc::ByteBuffer incoming_;            // of the read under way
  grpc::ByteBuffer outgoing_;            // of the write under way

  // Set once, by the first request, before the first Pump that uses them.
  std::shared_ptr<Subscription> subscription_;
  Consumer* consumer_ = nullptr;
  std::string client_id_;
  bool answers_pings_ = false;  // the client speaks a protocol version that has them

  mutable std::mutex mu_;
  bool opened_ = false;
  bool busy_ = false;        // somebody is sending
  bool again_ = false;       // and shall look again when done
  bool finished_ = false;    // Finish was called
  bool read_waits_ = false;  // too many confirmations are unsent to take more acks
  std::optional<absl::Status> ending_;
  int64_t unsent_bytes_ = 0;  // of the write under way
  Response head_;             // confirmations to send
  int64_t head_bytes_ = 0;    // about what those take
  bool head_wanted_ = false;  // even without messages
};

}  // namespace lockstep::emulator
