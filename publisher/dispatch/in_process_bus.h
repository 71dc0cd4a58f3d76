#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "publisher/dispatch/dispatcher.h"

// The bus of a service that hears its own events. Public: docs/embedding.md.
namespace lockstep::publisher {

// What a handler of an in-process bus gets.
struct Event {
  const std::string& table;
  const OutboxRow& row;
};

// A bus for services that hear their own events: handlers of a topic run on the bus's one thread,
// in order. Every handler of a topic runs, whatever the others answered; their failures are joined;
// an exception is a failure; no handler is EVENTBUS_NO_SUBSCRIBERS. A row with a failure is handed
// to all of them again: handlers are idempotent by event_id, as consumers of Pub/Sub are. One that
// has seen the event may say so by ALREADY_EXISTS, which is no failure. The end of the bus cancels
// what has not begun.
class InProcessBus : public Dispatcher {
 public:
  using Handler = std::function<absl::Status(const Event&)>;

  // At any time, from any thread.
  void Subscribe(const std::string& topic, Handler handler);

  void Dispatch(const std::string& table, const std::string& topic, std::vector<RowPtr> rows,
                Done done) override;

 private:
  struct Batch {
    std::string table;
    std::string topic;
    std::vector<RowPtr> rows;
    Done done;
  };

  void Run(const std::stop_token& stop);
  std::vector<DispatchResult> Deliver(const Batch& batch, const std::vector<Handler>& handlers);

  std::mutex mu_;
  std::condition_variable_any changed_;
  std::map<std::string, std::vector<Handler>> handlers_;
  std::deque<Batch> batches_;
  std::jthread thread_{[this](const std::stop_token& stop) { Run(stop); }};  // last: uses the rest
};

}  // namespace lockstep::publisher
