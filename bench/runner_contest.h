#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/runner_world.h"

// Those that are measured beside each other, with four connections each; all tell events a second.
namespace lockstep::bench {

// The runner's own transaction from a bare loop: nothing decoded, no bus.
double RawBound(RunnerWorld& world, const std::vector<pubsub::Message>& events);

// What most teams write: one transaction per message.
double Handler(RunnerWorld& world, std::vector<pubsub::Message> events);

struct RunnerRun {
  double rate = 0;
  double batch = 0;  // messages per transaction
  int64_t peak_kib = 0;
  double cpu_us = 0;      // of this process, per message: the client's share of the machine
  double machine_us = 0;  // of all that takes part, per message
};

// A backlog on the emulator at the address, then from opening the stream to the last commit; or to
// that of the first `enough` of them.
RunnerRun ThroughRunner(RunnerWorld& world, int outstanding, const std::string& address,
                        std::vector<pubsub::Message> events,
                        std::optional<int64_t> enough = std::nullopt);
// The same while the messages are sent: `send` begins with that once the runner is up, and what it
// answers is kept to the last commit, of `count` messages.
using Send = std::function<std::shared_ptr<void>(pubsub::Transport&, const std::string& topic)>;
RunnerRun ThroughRunner(RunnerWorld& world, int outstanding, const std::string& address,
                        int64_t count, const Send& send);

}  // namespace lockstep::bench
