#include "emulator/service/streaming_pull.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <tuple>
#include <utility>

#include "emulator/faults/ack_path.h"
#include "emulator/service/response_writer.h"
#include "emulator/service/rpc_status.h"
#include "emulator/wire/field_rules.h"
#include "platform/status.h"

namespace lockstep::emulator {
namespace {

// Unsent confirmations beyond this stop the reading of more acks.
constexpr int64_t kMaxConfirmations = 1 << 20;
constexpr int kProtocolVersionField = 10;

absl::Status CheckDeadline(int seconds) {
  return CheckRange("stream_ack_deadline_seconds", seconds, 10, 600);
}

}  // namespace

StreamingPull* StreamingPull::Begin(Broker* broker, Faults* faults, Timekeeper* timekeeper) {
  auto stream = std::make_shared<StreamingPull>(broker, faults, timekeeper);
  stream->self_ = stream;
  faults->AddStream(stream);
  stream->StartSendInitialMetadata();
  if (absl::Status refused = faults->CheckCall("StreamingPull"); !refused.ok()) {
    stream->CloseWith(refused);
  } else {
    stream->StartRead(&stream->incoming_);
  }
  return stream.get();
}

void StreamingPull::OnReadDone(bool ok) {
  if (!ok) return CloseWith(absl::OkStatus());  // half-closed, or gone
  faults_->WhenThawed([self = shared_from_this()] { self->HandleIncoming(); });
}

void StreamingPull::HandleIncoming() {
  Request request;
  const grpc::Status parsed =
      grpc::GenericDeserialize<grpc::ProtoBufferReader, Request>(&incoming_, &request);
  absl::Status handled =
      parsed.ok() ? Handle(std::move(request)) : InvalidArgument("The request is not well formed.");
  if (!handled.ok()) return CloseWith(handled);
  ReadMore();
  Pump();
}

void StreamingPull::ReadMore() {
  {
    std::scoped_lock lock(mu_);
    if (finished_ || ending_) return;
    read_waits_ = head_bytes_ > kMaxConfirmations;
    if (read_waits_) return;
  }
  StartRead(&incoming_);
}

absl::Status StreamingPull::Handle(Request request) {
  const bool ping = request.ByteSizeLong() == 0;
  const int64_t protocol_version = TakeInteger(kProtocolVersionField, &request);
  RETURN_IF_ERROR(RefuseUnknown(request));
  if (consumer_ == nullptr) {
    answers_pings_ = protocol_version > 0;
    RETURN_IF_ERROR(Open(request));
  } else {
    if (!request.subscription().empty() || request.max_outstanding_messages() != 0 ||
        request.max_outstanding_bytes() != 0 || protocol_version != 0) {
      return InvalidArgument(
          "Only the first request of a stream may set subscription, max_outstanding_messages, "
          "max_outstanding_bytes and protocol_version.");
    }
    if (answers_pings_ && ping) {
      std::scoped_lock lock(mu_);
      head_wanted_ = true;  // a ping: any response is the answer
    }
    if (request.stream_ack_deadline_seconds() != 0) {
      RETURN_IF_ERROR(CheckDeadline(request.stream_ack_deadline_seconds()));
      std::scoped_lock lock(mu_);
      if (finished_) return absl::OkStatus();  // and the consumer is gone
      subscription_->SetAckDeadline(consumer_,
                                    std::chrono::seconds(request.stream_ack_deadline_seconds()));
    }
  }
  return HandleAcks(request);
}

absl::Status StreamingPull::Open(const Request& request) {
  RETURN_IF_ERROR(CheckDeadline(request.stream_ack_deadline_seconds()));
  ASSIGN_OR_RETURN(subscription_, broker_->FindSubscription(request.subscription()));
  ConsumerLimits limits;
  if (!faults_->options().ignore_flow_control) {
    limits.max_messages = request.max_outstanding_messages();
    limits.max_bytes = request.max_outstanding_bytes();
  }
  limits.ack_deadline = std::chrono::seconds(request.stream_ack_deadline_seconds());
  client_id_ = request.client_id();
  ASSIGN_OR_RETURN(consumer_, subscription_->Attach(limits, client_id_, weak_from_this()));
  const auto properties = subscription_->Properties();
  bool too_late = false;
  {
    std::scoped_lock lock(mu_);
    // Clients decide by it how to ack.
    head_wanted_ = properties.exactly_once_delivery_enabled();
    opened_ = true;
    too_late = finished_;  // closed while we attached
  }
  if (too_late) subscription_->Detach(consumer_);
  return absl::OkStatus();
}

absl::Status StreamingPull::HandleAcks(const Request& request) {
  if (request.modify_deadline_seconds_size() != request.modify_deadline_ack_ids_size()) {
    return InvalidArgument(
        "modify_deadline_seconds and modify_deadline_ack_ids must have the same size.");
  }
  for (const int seconds : request.modify_deadline_seconds()) {
    RETURN_IF_ERROR(CheckRange("ack deadline", seconds, 0, 600, " s"));
  }
  if (!request.modify_deadline_ack_ids().empty()) {
    ASSIGN_OR_RETURN(AckReport report,
                     subscription_->ModifyAckDeadline(request.modify_deadline_ack_ids(),
                                                      {request.modify_deadline_seconds().begin(),
                                                       request.modify_deadline_seconds().end()}));
    if (report.exactly_once) {
      std::scoped_lock lock(mu_);
      auto* confirmation = head_.mutable_modify_ack_deadline_confirmation();
      for (auto& id : report.done) confirmation->add_ack_ids(std::move(id));
      for (auto& id : report.invalid) confirmation->add_invalid_ack_ids(std::move(id));
      NoteConfirmations(request.modify_deadline_ack_ids());
    }
  }
  if (request.ack_ids().empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(AckReport report,
                   AcknowledgePastFaults(faults_, timekeeper_, subscription_, request.ack_ids()));
  if (report.exactly_once) {
    std::scoped_lock lock(mu_);
    auto* confirmation = head_.mutable_acknowledge_confirmation();
    for (auto& id : report.done) confirmation->add_ack_ids(std::move(id));
    for (auto& id : report.invalid) confirmation->add_invalid_ack_ids(std::move(id));
    for (auto& id : report.unordered) confirmation->add_unordered_ack_ids(std::move(id));
    for (auto& id : report.temporary) confirmation->add_temporary_failed_ack_ids(std::move(id));
    NoteConfirmations(request.ack_ids());
  }
  return absl::OkStatus();
}

// With mu_ held.
void StreamingPull::NoteConfirmations(const Subscription::AckIds& ids) {
  for (const std::string& id : ids) head_bytes_ += static_cast<int64_t>(id.size()) + 4;
  head_wanted_ = true;
}

void StreamingPull::CloseWith(const absl::Status& reason) {
  {
    std::scoped_lock lock(mu_);
    if (!ending_) ending_ = reason;
  }
  Pump();
}

StreamInfo StreamingPull::Info() const {
  StreamInfo info;
  std::scoped_lock lock(mu_);  // and while it is held, the consumer is not detached
  if (!opened_ || finished_) return info;
  info.subscription = subscription_->name();
  info.client_id = client_id_;
  info.unsent_bytes = unsent_bytes_ + head_bytes_;
  std::tie(info.outstanding_messages, info.outstanding_bytes) =
      subscription_->OutstandingOf(consumer_);
  return info;
}

void StreamingPull::Pump() {
  std::unique_lock lock(mu_);
  again_ = true;
  if (busy_ || finished_) return;
  busy_ = true;
  while (again_ || ending_) {
    again_ = false;
    if (ending_) {  // busy_ stays: nothing is sent after the end
      finished_ = true;
      const absl::Status end = *ending_;
      const bool attached = opened_;
      lock.unlock();
      // Before Finish: a client that sees the end must not find us among the consumers any more.
      if (attached) subscription_->Detach(consumer_);
      return Finish(ToGrpc(end));
    }
    if (!opened_) break;
    lock.unlock();
    if (SendNext()) return;  // OnWriteDone goes on
    lock.lock();
  }
  busy_ = false;
}

bool StreamingPull::SendNext() {
  if (faults_->options().frozen) return false;
  auto taken = subscription_->Take(consumer_, Budget{});
  Response head;
  {
    std::scoped_lock lock(mu_);
    if (!taken.ok()) {
      if (!ending_) ending_ = taken.status();
      return false;
    }
    if (taken->empty() && !head_wanted_) return false;
    head = std::exchange(head_, {});
    head_bytes_ = 0;
    head_wanted_ = false;
  }
  const absl::Status fault = taken->empty() ? absl::OkStatus() : faults_->CheckStream();
  // Each time: they may change while we stream.
  *head.mutable_subscription_properties() = subscription_->Properties();
  std::vector<Delivery> deliveries;
  deliveries.reserve(taken->size());
  for (Delivery& delivery : *taken) {
    deliveries.push_back(std::move(delivery));
    if (!faults_->Duplicate()) continue;
    deliveries.push_back(deliveries.back());
    deliveries.back().copy = 1;
  }
  outgoing_ = WriteResponse(head, subscription_->number(), deliveries);
  {
    std::scoped_lock lock(mu_);
    unsent_bytes_ = static_cast<int64_t>(outgoing_.Length());
    // After what was taken, as the service does it: a message that is leased has been sent, or the
    // next one of its key would overtake it on the client's next stream.
    if (!fault.ok() && !ending_) ending_ = fault;
  }
  StartWrite(&outgoing_);
  return true;
}

void StreamingPull::OnWriteDone(bool ok) {
  bool read = false;
  {
    std::scoped_lock lock(mu_);
    busy_ = false;
    unsent_bytes_ = 0;
    if (!ok && !ending_) ending_ = absl::CancelledError("The client is gone.");
    read = std::exchange(read_waits_, false);
  }
  if (read) ReadMore();
  Pump();
}

}  // namespace lockstep::emulator
