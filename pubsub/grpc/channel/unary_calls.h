#pragma once

#include <grpcpp/client_context.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "platform/clock.h"

namespace lockstep::pubsub::grpc_client {

// Unary RPCs under way: each with a deadline, cancelled together, waited for. Their answers come on
// gRPC's threads. Safe from any thread; the destructor closes, so that an answer never meets an
// owner that is gone.
class UnaryCalls {
 public:
  ~UnaryCalls() { Close(); }

  // `start(context, request, response, callback)` starts the RPC, as the methods of a stub's
  // async() do. The request is alive until `done` returns.
  template <typename Response, typename Request, typename Start, typename Done>
  void Run(const Start& start, std::shared_ptr<Request> request, Millis timeout, Done done) {
    auto call = std::make_shared<Call<Response>>();  // shared with gRPC's copyable callback
    call->context.set_deadline(std::chrono::system_clock::now() + timeout);
    if (!Enter(&call->context)) call->context.TryCancel();
    start(&call->context, request.get(), &call->response,
          [this, call, request, done = std::move(done)](const grpc::Status& status) {
            done(status, call->response);
            Leave(&call->context);
          });
  }

  // Cancels what is under way and whatever starts later, and waits for the first.
  void Close() {
    std::unique_lock lock(mu_);
    cancelled_ = true;
    // Under the lock, for a context must not end meanwhile. TryCancel never runs a callback itself:
    // gRPC runs those on its own threads.
    for (grpc::ClientContext* context : open_) context->TryCancel();
    idle_.wait(lock, [this] { return open_.empty(); });
  }

 private:
  template <typename Response>
  struct Call {
    grpc::ClientContext context;
    Response response;
  };

  bool Enter(grpc::ClientContext* context) {
    std::scoped_lock lock(mu_);
    open_.insert(context);
    return !cancelled_;
  }

  void Leave(grpc::ClientContext* context) {
    std::scoped_lock lock(mu_);
    open_.erase(context);
    // Under the lock: the waiter may destroy this object as soon as it gets the lock.
    if (open_.empty()) idle_.notify_all();
  }

  std::mutex mu_;
  std::condition_variable idle_;
  std::unordered_set<grpc::ClientContext*> open_;
  bool cancelled_ = false;
};

}  // namespace lockstep::pubsub::grpc_client
