#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "platform/status.h"
#include "pubsub/grpc/receive/ack_rpc.h"
#include "pubsub/grpc/receive/ack_writer.h"
#include "pubsub/grpc/receive/flow_control.h"
#include "pubsub/grpc/receive/lease_keeper.h"
#include "pubsub/grpc/receive/receipts.h"
#include "pubsub/grpc/receive/stream_keeper.h"
#include "pubsub/grpc/receive/stream_state.h"
#include "pubsub/grpc/transport.h"
#include "pubsub/stream_limits.h"
#include "pubsub/user_call.h"

namespace lockstep::pubsub::grpc_client {
namespace {

// protocol_version (field 10) = 1, the one with pings; by its bytes, for google-cloud-cpp's
// declaration, which takes the place of ours where it is built in, may be too old for the field.
constexpr char kProtocolWithPings[] = "\x50\x01";

void Unheard(const std::vector<absl::Status>&) {}

std::vector<AckToken> TokensOf(const std::vector<Delivery>& deliveries) {
  std::vector<AckToken> tokens;
  tokens.reserve(deliveries.size());
  for (const Delivery& delivery : deliveries) tokens.push_back(delivery.token);
  return tokens;
}

Load LoadOf(const std::vector<Delivery>& deliveries) {
  Load load;
  for (const Delivery& delivery : deliveries) load.Add(delivery.message.ByteSize());
  return load;
}

PullStream::Request FirstRequest(const ReceiverOptions& options) {
  PullStream::Request request;
  request.set_subscription(options.subscription);
  request.set_stream_ack_deadline_seconds(
      static_cast<int>(StreamDeadline(options.ack_deadline).count()));
  request.set_client_id(options.client_id);
  request.set_max_outstanding_messages(
      PerStream(options.max_outstanding_messages, options.streams));
  request.set_max_outstanding_bytes(PerStream(options.max_outstanding_bytes, options.streams));
  if (options.keepalive > Millis(0)) request.MergeFromString(kProtocolWithPings);
  return request;
}

// Wired from its stages:
//
//   StreamKeeper (one per stream) ──> FlowControl ──> Receipts ──> LeaseKeeper ──> the user's sink
//   Acknowledge ──> LeaseKeeper, FlowControl ──> AckWriter ──> AckRpc
//   Release     ──> LeaseKeeper, FlowControl ──> AckWriter ──> AckRpc
class GrpcReceiver final : public Receiver {
 public:
  GrpcReceiver(const ReceiverOptions& options, DeliverySink& sink, std::shared_ptr<Client> client)
      : options_(options),
        sink_(sink),
        client_(std::move(client)),
        flow_({options.max_outstanding_messages, options.max_outstanding_bytes}),
        state_([this](const absl::Status& state) {
          Fenced("the sink's OnStreamState", [&] { sink_.OnStreamState(state); });
        }),
        rpc_(client_, options.subscription),
        leases_(options, rpc_, client_->timers, Clock::System(),
                [this](std::vector<AckToken> tokens, Load load) {
                  Fenced("the sink's OnLeaseLost", [&] { sink_.OnLeaseLost(std::move(tokens)); });
                  flow_.Give(load);
                }),
        receipts_(rpc_, options.ack_deadline,
                  [this](Receipts::Batch batch) { HandOver(std::move(batch)); }),
        acks_(
            AckWriter::Kind::kAck, rpc_, options.ack_timeout, client_->timers,
            [this](const std::vector<std::string>& ids) { leases_.EndAck(ids); },
            // Until it comes again the server counts it as outstanding, and sends so much less.
            [this](std::vector<AckToken> late) { releases_.Add(std::move(late), Unheard); }),
        // A release is never too late, only of no use once the lease has run out.
        releases_(AckWriter::Kind::kRelease, rpc_, options.ack_deadline, client_->timers) {}

  ~GrpcReceiver() override { Stop(); }

  absl::Status Start() override {
    if (options_.subscription.empty()) return InvalidArgument("a receiver needs a subscription");
    {
      std::scoped_lock lock(mu_);
      if (life_ != Life::kNew) {
        return FailedPrecondition("the receiver was started or stopped before");
      }
      life_ = Life::kRunning;
      for (int i = 0; i < std::max(1, options_.streams); ++i) streams_.push_back(NewStream(i));
    }
    leases_.Start();
    for (const auto& stream : streams_) stream->Start();
    return absl::OkStatus();
  }

  void StopPulling() override {
    {
      std::scoped_lock lock(mu_);
      if (life_ != Life::kRunning) return;
      life_ = Life::kDraining;
    }
    flow_.Open();  // streams that wait for room must be read to their end
    for (const auto& stream : streams_) stream->HalfClose();
  }

  void Stop() override {
    StopPulling();
    std::call_once(stopped_, [this] {
      {
        std::scoped_lock lock(mu_);
        life_ = Life::kStopped;
      }
      for (const auto& stream : streams_) stream->AwaitEnd();
      receipts_.Flush(options_.ack_timeout);
      leases_.Stop();
      acks_.Flush(options_.ack_timeout);
      releases_.Flush(options_.ack_timeout);
      acks_.Close();
      releases_.Close();
      rpc_.Close();
    });
  }

  void Acknowledge(std::vector<AckToken> tokens, Done done) override {
    const Load given = leases_.BeginAck(tokens);
    acks_.Add(std::move(tokens), std::move(done));
    flow_.Give(given);
  }

  void Release(std::vector<AckToken> tokens, Done done) override {
    const Load given = leases_.Remove(tokens);
    releases_.Add(std::move(tokens), std::move(done));
    flow_.Give(given);
  }

 private:
  enum class Life { kNew, kRunning, kDraining, kStopped };

  std::unique_ptr<StreamKeeper> NewStream(int index) {
    auto up = std::make_shared<bool>(false);  // StreamState's note about this stream
    return std::make_unique<StreamKeeper>(
        client_, static_cast<size_t>(index), FirstRequest(options_), options_.keepalive,
        StreamKeeper::Events{
            .on_response = [this](PullStream::Response& response) { OnResponse(response); },
            .may_read =
                [this](std::function<void()> resume) { return flow_.MayRead(std::move(resume)); },
            .on_state = [this, up](const absl::Status& s) { state_.OnStream(s, up.get()); }});
  }

  void OnResponse(PullStream::Response& response) {
    if (response.exactly_once) exactly_once_ = *response.exactly_once;
    if (response.deliveries.empty()) return;
    std::vector<Delivery> deliveries = std::move(response.deliveries);
    flow_.Take(LoadOf(deliveries));
    receipts_.Add(std::move(deliveries), exactly_once_);
  }

  void HandOver(Receipts::Batch batch) {
    // Nobody has seen these: they come again, or somebody else has them.
    flow_.Give(LoadOf(batch.refused));
    if (batch.held.empty()) return;
    bool running = false;
    {
      std::scoped_lock lock(mu_);
      running = life_ == Life::kRunning;
    }
    if (!running) {
      // Nobody will look at them: others should have them soon.
      releases_.Add(TokensOf(batch.held), Unheard);
      return;
    }
    leases_.Add(batch.held, batch.received);
    Fenced("the sink's OnDeliveries", [&] { sink_.OnDeliveries(std::move(batch.held)); });
  }

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
  std::once_flag stopped_;

  std::mutex mu_;
  Life life_ = Life::kNew;
  std::vector<std::unique_ptr<StreamKeeper>> streams_;  // fixed once running
};

}  // namespace

std::unique_ptr<Receiver> MakeReceiver(const ReceiverOptions& options, DeliverySink& sink,
                                       std::shared_ptr<Client> client) {
  return std::make_unique<GrpcReceiver>(options, sink, std::move(client));
}

}  // namespace lockstep::pubsub::grpc_client
