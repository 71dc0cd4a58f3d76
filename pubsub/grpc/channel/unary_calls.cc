#include "pubsub/grpc/channel/unary_calls.h"

namespace lockstep::pubsub::grpc_client {

bool UnaryCalls::Enter(grpc::ClientContext* context) {
  std::scoped_lock lock(mu_);
  open_.insert(context);
  return !cancelled_;
}

void UnaryCalls::Leave(grpc::ClientContext* context) {
  std::scoped_lock lock(mu_);
  open_.erase(context);
  // Under the lock: the waiter may destroy this object as soon as it gets the lock.
  if (open_.empty()) idle_.notify_all();
}

void UnaryCalls::CancelAll() {
  std::scoped_lock lock(mu_);
  cancelled_ = true;
  // Under the lock, for a context must not end meanwhile. TryCancel never runs a callback itself:
  // gRPC runs those on its own threads.
  for (grpc::ClientContext* context : open_) context->TryCancel();
}

void UnaryCalls::Wait() {
  std::unique_lock lock(mu_);
  idle_.wait(lock, [this] { return open_.empty(); });
}

}  // namespace lockstep::pubsub::grpc_client
