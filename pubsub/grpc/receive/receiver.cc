#include "pubsub/grpc/receive/receiver.h"

#include <algorithm>
#include <utility>

#include "platform/log/log.h"
#include "platform/status.h"
#include "pubsub/grpc/codec/message_codec.h"

namespace lockstep::pubsub::grpc_client {
namespace {

// protocol_version (field 10) = 1, the one with pings; by its bytes, for google-cloud-cpp's
// declaration, which takes the place of ours where it is built in, may be too old for the field.
constexpr char kProtocolWithPings[] = "\x50\x01";

constexpr Millis kReleaseRpc{5'000};

// The user's code is fenced: what it throws ends here.
template <typename Function>
bool Fenced(const char* what, const Function& function) {
  try {
    function();
    return true;
  } catch (const std::exception& error) {
    log::Error("a delivery callback threw", {{"callback", what}, {"error", error.what()}});
  } catch (...) {
    log::Error("a delivery callback threw", {{"callback", what}});
  }
  return false;
}

void Unheard(const std::vector<absl::Status>&) {}

std::vector<AckToken> TokensOf(const std::vector<Delivery>& deliveries) {
  std::vector<AckToken> tokens;
  tokens.reserve(deliveries.size());
  for (const Delivery& delivery : deliveries) tokens.push_back(delivery.token);
  return tokens;
}

int64_t BytesOf(const std::vector<Delivery>& deliveries) {
  int64_t bytes = 0;
  for (const Delivery& delivery : deliveries) bytes += delivery.message.ByteSize();
  return bytes;
}

}  // namespace

GrpcReceiver::GrpcReceiver(const ReceiverOptions& options, DeliverySink& sink,
                           std::shared_ptr<Client> client)
    : options_(options),
      sink_(sink),
      client_(std::move(client)),
      flow_(options.max_outstanding_messages, options.max_outstanding_bytes),
      state_([this](const absl::Status& state) {
        Fenced("OnStreamState", [&] { sink_.OnStreamState(state); });
      }),
      rpc_(client_, options.subscription),
      leases_({options.subscription, options.ack_deadline, options.max_extension}, rpc_,
              client_->timers, Clock::System(),
              [this](std::vector<AckToken> tokens, LeaseKeeper::InHand in_hand) {
                OnLost(std::move(tokens), in_hand);
              }),
      receipts_(rpc_, options.ack_deadline,
                [this](Receipts::Batch batch) { HandOver(std::move(batch)); }),
      acks_(
          [this](std::vector<std::string> ids, Millis timeout, AckRpc::Done done) {
            rpc_.Acknowledge(std::move(ids), timeout, std::move(done));
          },
          options.ack_timeout, client_->timers,
          [this](const std::vector<std::string>& ids) { leases_.EndAck(ids); },
          // Until it comes again the server counts it as outstanding, and sends so much less.
          [this](std::vector<AckToken> late) { releases_.Add(std::move(late), Unheard); }),
      // A release is never too late, only of no use once the lease has run out.
      releases_(
          [this](std::vector<std::string> ids, Millis timeout, AckRpc::Done done) {
            rpc_.ModifyDeadline(std::move(ids), 0, std::min(timeout, kReleaseRpc), std::move(done));
          },
          options.ack_deadline, client_->timers) {}

GrpcReceiver::~GrpcReceiver() { Stop(); }

PullStream::Request GrpcReceiver::FirstRequest() const {
  const int64_t streams = std::max(1, options_.streams);
  PullStream::Request request;
  request.set_subscription(options_.subscription);
  request.set_stream_ack_deadline_seconds(static_cast<int>(std::clamp<int64_t>(
      std::chrono::ceil<std::chrono::seconds>(options_.ack_deadline).count(), 10, 600)));
  request.set_client_id(options_.client_id);
  request.set_max_outstanding_messages(
      std::max<int64_t>(1, (options_.max_outstanding_messages + streams - 1) / streams));
  request.set_max_outstanding_bytes(
      std::max<int64_t>(1, (options_.max_outstanding_bytes + streams - 1) / streams));
  if (options_.keepalive > Millis(0)) request.MergeFromString(kProtocolWithPings);
  return request;
}

absl::Status GrpcReceiver::Start() {
  if (options_.subscription.empty()) return InvalidArgument("a receiver needs a subscription");
  const PullStream::Request request = FirstRequest();
  std::vector<StreamKeeper*> streams;
  {
    std::scoped_lock lock(mu_);
    if (life_ != Life::kNew) {
      return FailedPrecondition("the receiver was started or stopped before");
    }
    life_ = Life::kRunning;
    for (int i = 0; i < std::max(1, options_.streams); ++i) {
      auto up = std::make_shared<bool>(false);  // StreamState's note about this stream
      streams_.push_back(std::make_unique<StreamKeeper>(
          client_, static_cast<size_t>(i), request, options_.keepalive,
          StreamKeeper::Events{
              .on_response = [this](PullStream::Response& response) { OnResponse(response); },
              .may_read =
                  [this](std::function<void()> resume) { return flow_.MayRead(std::move(resume)); },
              .on_state = [this, up](const absl::Status& s) { state_.OnStream(s, up.get()); }}));
      streams.push_back(streams_.back().get());
    }
  }
  leases_.Start();
  for (StreamKeeper* stream : streams) stream->Start();
  return absl::OkStatus();
}

void GrpcReceiver::OnResponse(PullStream::Response& response) {
  if (response.exactly_once) exactly_once_ = *response.exactly_once;
  if (response.deliveries.empty()) return;
  std::vector<Delivery> deliveries = std::move(response.deliveries);
  flow_.Take(static_cast<int64_t>(deliveries.size()), BytesOf(deliveries));
  receipts_.Add(std::move(deliveries), exactly_once_);
}

void GrpcReceiver::HandOver(Receipts::Batch batch) {
  // Nobody has seen these: they come again, or somebody else has them.
  flow_.Give(static_cast<int64_t>(batch.refused.size()), BytesOf(batch.refused));
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
  Fenced("OnDeliveries", [&] { sink_.OnDeliveries(std::move(batch.held)); });
}

void GrpcReceiver::OnLost(std::vector<AckToken> tokens, LeaseKeeper::InHand in_hand) {
  Fenced("OnLeaseLost", [&] { sink_.OnLeaseLost(std::move(tokens)); });
  flow_.Give(in_hand.messages, in_hand.bytes);
}

void GrpcReceiver::Acknowledge(std::vector<AckToken> tokens, Done done) {
  const LeaseKeeper::InHand given = leases_.BeginAck(tokens);
  acks_.Add(std::move(tokens), std::move(done));
  flow_.Give(given.messages, given.bytes);
}

void GrpcReceiver::Release(std::vector<AckToken> tokens, Done done) {
  const LeaseKeeper::InHand given = leases_.Remove(tokens);
  releases_.Add(std::move(tokens), std::move(done));
  flow_.Give(given.messages, given.bytes);
}

void GrpcReceiver::StopPulling() {
  {
    std::scoped_lock lock(mu_);
    if (life_ != Life::kRunning) return;
    life_ = Life::kDraining;
  }
  flow_.Open();  // streams that wait for room must be read to their end
  for (const auto& stream : streams_) stream->HalfClose();
}

void GrpcReceiver::Stop() {
  StopPulling();
  {
    std::unique_lock lock(mu_);
    if (life_ == Life::kStopping) {
      stopped_.wait(lock, [this] { return life_ == Life::kStopped; });
    }
    if (life_ == Life::kStopped) return;
    life_ = Life::kStopping;
  }
  for (const auto& stream : streams_) stream->AwaitEnd();
  receipts_.Flush(options_.ack_timeout);
  leases_.Stop();
  acks_.Flush(options_.ack_timeout);
  releases_.Flush(options_.ack_timeout);
  acks_.Close();
  releases_.Close();
  rpc_.Close();
  std::scoped_lock lock(mu_);
  life_ = Life::kStopped;
  stopped_.notify_all();
}

}  // namespace lockstep::pubsub::grpc_client
