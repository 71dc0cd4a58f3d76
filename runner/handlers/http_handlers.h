#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "envelope/http/endpoint.h"
#include "platform/http_client/client.h"
#include "platform/metrics.h"
#include "projections/model/call.h"
#include "runner/batch/outside.h"

namespace lockstep::runner {

// Requests of one batch on their way to HTTP handlers. Those of an aggregate are a chain, of which
// one is under way at a time. Made by a lane, which waits for it; from Begin to Abandon or until it
// is settled it belongs to HttpHandlers.
struct CallRound {
  struct Chain {
    std::vector<size_t> calls;  // by their place in the vectors below
    size_t next = 0;
  };
  std::vector<uint32_t> handlers;       // whom each call is for
  std::vector<http::Request> requests;  // each is taken out when it is sent
  std::vector<http::Verdict> answers;
  std::vector<bool> answered;  // one that can't be sent comes answered
  std::vector<Chain> chains;
  SteadyTime over;  // after that none is begun
  // Wakes the lane: nothing is under way, and nothing can begin. On the client's thread, under its
  // lock: must not call back.
  std::function<void()> on_settled;

  // HttpHandlers' own.
  std::vector<size_t> ready;  // chains whose next call may begin, the next one last
  int under_way = 0;
  bool abandoned = false;
};

// The HTTP handlers of one group in one process: where they are, how many requests each may have
// under way, over all lanes, and how they have answered. Safe from any thread. Its end drops the
// requests under way.
class HttpHandlers {
 public:
  // `calls`: Projector::Calls(), which outlive it.
  HttpHandlers(std::span<const projections::Call> calls, MetricsRegistry& metrics,
               const std::string& group);

  // Reads what the endpoints need: addresses, secrets. FAILED_PRECONDITION with a sentence for the
  // first mistake. What is open already stays so. REQUIRES: no round is under way.
  absl::Status Open();

  // Makes the request of a call. INVALID_ARGUMENT when the event can't be one.
  absl::StatusOr<http::Request> RequestFor(const OutsideCall& call) const;

  void Begin(const std::shared_ptr<CallRound>& round);
  // Nobody waits for it any longer: what is under way is left to itself, nothing more begins.
  void Abandon(CallRound& round);
  // Whether nothing is under way and nothing can begin: its answers are the caller's then.
  bool Settled(const CallRound& round) const;

  const projections::Call& call(uint32_t index) const { return calls_[index]; }
  // How many events the handler has accepted so far, and when the last one.
  int64_t accepted(uint32_t call) const { return handlers_[call]->accepted; }
  SteadyTime last_accepted(uint32_t call) const { return handlers_[call]->last_accepted; }

 private:
  struct Handler {
    std::unique_ptr<envelope::Endpoint> endpoint;  // null = no endpoint, or not open yet
    int under_way = 0;                             // of all rounds
    std::atomic<int64_t> accepted{0};
    std::atomic<SteadyTime> last_accepted{};
    prometheus::Counter* answers[3] = {};  // by http::Verdict::Outcome
    prometheus::Histogram* seconds = nullptr;
  };
  struct Sending {
    std::shared_ptr<CallRound> round;
    size_t chain = 0;
    size_t call = 0;
    http::Request request;
  };

  // Under mu_: what may begin now, of all rounds in turn.
  void Pump(std::vector<Sending>& sending);
  bool PumpOne(const std::shared_ptr<CallRound>& round, std::vector<Sending>& sending);
  void Send(std::vector<Sending> sending);
  void OnAnswer(const std::shared_ptr<CallRound>& round, size_t chain, size_t call,
                http::Verdict verdict, double seconds);
  static bool SettledNow(const CallRound& round);

  const std::span<const projections::Call> calls_;
  std::vector<std::unique_ptr<Handler>> handlers_;  // by call

  mutable std::mutex mu_;
  std::vector<std::shared_ptr<CallRound>> rounds_;  // under way
  size_t turn_ = 0;

  std::unique_ptr<http::Client> client_;  // last: its thread uses the rest
};

}  // namespace lockstep::runner
