#include "emulator/service/pull.h"

#include <algorithm>
#include <utility>

#include "emulator/core/ack_id.h"
#include "emulator/service/rpc_status.h"
#include "emulator/wire/field_rules.h"
#include "platform/status.h"

namespace lockstep::emulator {
namespace {

constexpr auto kLongestWait = std::chrono::seconds(20);
constexpr int kMaxMessages = 1000;

}  // namespace

Pull::Pull(Faults* faults, const pb::PullRequest* request, pb::PullResponse* response)
    : faults_(faults),
      request_(request),
      response_(response),
      return_immediately_(request->return_immediately()) {}

grpc::ServerUnaryReactor* Pull::Begin(Broker* broker, Faults* faults, Timekeeper* timekeeper,
                                      const pb::PullRequest* request, pb::PullResponse* response) {
  auto pull = std::make_shared<Pull>(faults, request, response);
  pull->self_ = pull;
  faults->WhenThawed([pull, broker, timekeeper] {
    absl::Status opened = pull->Open(broker);
    if (!opened.ok()) return pull->End(opened);
    if (pull->return_immediately_) return pull->Try(true);
    timekeeper->At(timekeeper->clock().Steady() + kLongestWait, [weak = std::weak_ptr(pull)] {
      if (auto self = weak.lock()) self->Try(true);
    });
    pull->Try(false);
  });
  return pull.get();
}

absl::Status Pull::Open(Broker* broker) {
  std::scoped_lock lock(mu_);  // Wake may come as soon as we are attached
  if (ended_) return absl::CancelledError("The client has gone while we were frozen.");
  RETURN_IF_ERROR(faults_->CheckCall("Pull"));
  RETURN_IF_ERROR(RefuseUnknown(*request_));
  if (request_->max_messages() <= 0) {
    return InvalidArgument("Invalid max_messages: {} is not positive.", request_->max_messages());
  }
  ASSIGN_OR_RETURN(subscription_, broker->FindSubscription(request_->subscription()));
  ConsumerLimits limits;
  limits.ack_deadline = std::chrono::seconds(subscription_->Config().ack_deadline_seconds());
  ASSIGN_OR_RETURN(consumer_, subscription_->Attach(limits, "", weak_from_this()));
  return absl::OkStatus();
}

void Pull::Try(bool last) {
  absl::Status status;
  {
    std::scoped_lock lock(mu_);
    if (ended_ || consumer_ == nullptr || (faults_->options().frozen && !last)) return;
    const int wanted = std::min(request_->max_messages(), kMaxMessages);
    auto taken = subscription_->Take(consumer_, Budget{static_cast<size_t>(wanted)});
    if (taken.ok() && taken->empty() && !last) return;
    ended_ = true;
    if (!taken.ok()) status = taken.status();
    for (const Delivery& delivery : taken.ok() ? *taken : std::vector<Delivery>()) {
      auto* received = response_->add_received_messages();
      received->set_ack_id(
          AckId{subscription_->number(), delivery.message->sequence, delivery.lease}.Text());
      received->mutable_message()->ParseFromString(delivery.message->wire);
      received->set_delivery_attempt(delivery.attempt);
    }
  }
  Leave(status);
}

void Pull::End(const absl::Status& status) {
  {
    std::scoped_lock lock(mu_);
    if (std::exchange(ended_, true)) return;
  }
  Leave(status);
}

void Pull::Leave(const absl::Status& status) {
  if (consumer_ != nullptr) subscription_->Detach(consumer_);
  Finish(ToGrpc(status));
}

}  // namespace lockstep::emulator
