#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"

namespace lockstep {
class ConfigSection;
}

namespace lockstep::emulator {

// What goes wrong by chance. Probabilities are between 0 and 1.
struct FaultOptions {
  int seed = 1;           // the same seed gives the same decisions in the same order
  double drop_acks = 0;   // of each ack: it is answered and forgotten
  double delay_acks = 0;  // of each ack: it is answered and takes effect `ack_delay` later
  Millis ack_delay{1000};
  double close_streams = 0;  // before each response of a stream: UNAVAILABLE instead
  double duplicate = 0;      // of each delivery: it comes twice
  double refuse = 0;         // of each unary RPC: it is refused with `refuse_status`
  absl::StatusCode refuse_status = absl::StatusCode::kUnavailable;
  std::string refuse_method;  // only of these ("Publish,Seek"); empty = of every one
  // Streams that open meanwhile are sent all there is, whatever limits they ask for: as Google's
  // emulator does it.
  bool ignore_flow_control = false;
  bool frozen = false;  // nothing is answered and nothing delivered until Thaw

  absl::Status Validate() const;
};
// The same as keys of a configuration: --fault-seed and so on.
void Bind(ConfigSection& config, FaultOptions& options);

// What an open stream holds at this moment.
struct StreamInfo {
  std::string subscription;
  std::string client_id;
  int64_t unsent_bytes = 0;          // responses that gRPC has not taken off our hands yet
  int64_t outstanding_messages = 0;  // sent, and neither acked, nacked nor expired
  int64_t outstanding_bytes = 0;
};

// A stream as seen from outside: it can be ended and asked.
class OpenStream {
 public:
  virtual ~OpenStream() = default;
  virtual void CloseWith(const absl::Status& reason) = 0;
  virtual StreamInfo Info() const = 0;
};

// Fault injection. Tests change it while the server runs; the services ask it. Any thread may call
// it; tasks and streams are called without its lock.
class Faults {
 public:
  explicit Faults(FaultOptions options = {});

  void Set(const FaultOptions& options);
  // The next `count` calls of `method` ("Publish", "StreamingPull"; empty = of any) are refused.
  void RefuseNext(std::string method, absl::Status with, int count = 1);
  // Ends every open stream now.
  void CloseStreams(const absl::Status& with);
  // Every open stream, in the order of their opening.
  std::vector<StreamInfo> Streams() const;
  // While frozen, calls wait and streams deliver nothing. Thaw answers what has waited.
  void Freeze();
  void Thaw();
  // How many calls wait for that.
  size_t Waiting() const;

  // For the services:
  absl::Status CheckCall(std::string_view method);  // the status to refuse it with, or OK
  absl::Status CheckStream();                       // before each response
  enum class AckFate { kApply, kDrop, kDelay };
  AckFate FateOfAck();
  bool Duplicate();
  FaultOptions options() const;
  // Runs the task now, or when thawed.
  void WhenThawed(std::function<void()> task);
  // Called after every Thaw.
  void OnThaw(std::function<void()> run);
  void AddStream(std::weak_ptr<OpenStream> stream);

 private:
  struct Refusal {
    std::string method;
    absl::Status status;
    int left;
  };
  bool Roll(double probability);
  std::vector<std::shared_ptr<OpenStream>> Open() const;

  mutable std::mutex mu_;
  FaultOptions options_;
  std::mt19937_64 random_;
  std::vector<Refusal> refusals_;
  std::vector<std::function<void()>> frozen_tasks_;
  std::function<void()> on_thaw_;
  std::vector<std::weak_ptr<OpenStream>> streams_;  // weak: a stream ends when it wants
};

}  // namespace lockstep::emulator
