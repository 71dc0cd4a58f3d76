#include "publisher/dispatch/in_process_bus.h"

#include <fmt/format.h>

#include <exception>
#include <set>
#include <utility>

#include "platform/status.h"

namespace lockstep::publisher {
namespace {

constexpr char kNoSubscribers[] = "EVENTBUS_NO_SUBSCRIBERS";

absl::Status Call(const InProcessBus::Handler& handler, const Event& event) {
  try {
    return handler(event);
  } catch (const std::exception& e) {
    return Internal("a handler threw: {}", e.what());
  } catch (...) {
    return Internal("a handler threw something that is no std::exception");
  }
}

absl::Status CallAll(const std::vector<InProcessBus::Handler>& handlers, const Event& event) {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::vector<std::string> failures;
  bool known = false;
  for (const auto& handler : handlers) {
    const absl::Status called = Call(handler, event);
    known = known || absl::IsAlreadyExists(called);
    if (called.ok() || absl::IsAlreadyExists(called)) continue;
    if (failures.empty()) code = called.code();
    failures.emplace_back(MessageOf(called));
  }
  if (failures.empty()) {
    return known ? absl::AlreadyExistsError("a handler had it already") : absl::OkStatus();
  }
  // A handler's own INVALID_ARGUMENT and the like are its business, not the bus's: to the relay a
  // failed handler is a fault of the row, but for what the handler could not reach.
  if (code != absl::StatusCode::kUnavailable) code = absl::StatusCode::kInternal;
  return absl::Status(code, fmt::format("{}", fmt::join(failures, "; ")));
}

}  // namespace

void InProcessBus::Subscribe(const std::string& topic, Handler handler) {
  std::scoped_lock lock(mu_);
  handlers_[topic].push_back(std::move(handler));
}

void InProcessBus::Dispatch(const std::string& table, const std::string& topic,
                            std::vector<RowPtr> rows, Done done) {
  {
    std::scoped_lock lock(mu_);
    batches_.push_back({table, topic, std::move(rows), std::move(done)});
  }
  changed_.notify_all();
}

void InProcessBus::Run(const std::stop_token& stop) {
  std::unique_lock lock(mu_);
  while (changed_.wait(lock, stop, [this] { return !batches_.empty(); })) {
    Batch batch = std::move(batches_.front());
    batches_.pop_front();
    const auto found = handlers_.find(batch.topic);
    const std::vector<Handler> handlers =
        found == handlers_.end() ? std::vector<Handler>() : found->second;
    lock.unlock();
    if (stop.stop_requested()) {
      batch.done(std::vector<DispatchResult>(
          batch.rows.size(), {absl::CancelledError("the bus is stopping"), "", ""}));
    } else {
      batch.done(Deliver(batch, handlers));
    }
    lock.lock();
  }
}

std::vector<DispatchResult> InProcessBus::Deliver(const Batch& batch,
                                                  const std::vector<Handler>& handlers) {
  std::vector<DispatchResult> results;
  std::set<std::string> stopped;  // keys with a failure: their later rows wait for it
  for (const RowPtr& row : batch.rows) {
    if (handlers.empty()) {
      // As a missing topic at Pub/Sub: nothing is wrong with the row.
      results.push_back(
          {NotFound("nothing in this process subscribes to {}", batch.topic), "", kNoSubscribers});
    } else if (stopped.contains(row->aggregate_id)) {
      results.push_back({absl::AbortedError("an earlier event of the key failed"), "", ""});
    } else {
      const absl::Status called = CallAll(handlers, {batch.table, *row});
      if (!called.ok() && !absl::IsAlreadyExists(called)) stopped.insert(row->aggregate_id);
      results.push_back({called, "", ""});
    }
  }
  return results;
}

}  // namespace lockstep::publisher
