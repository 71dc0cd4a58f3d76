#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "platform/clock.h"

namespace lockstep::publisher {

// Something of a publisher that does not do its work, and why.
struct Trouble {
  std::string subject;  // a table, or the session that holds the shards
  std::string why;
};

// From faults to readiness: a fault counts once it has lasted for the grace period, so that a
// database that restarts takes no publisher out of service; at the start it counts at once. Asked
// once a second by the status page and by every probe. Safe from any thread.
class Readiness {
 public:
  explicit Readiness(Millis grace) : grace_(grace) {}

  // One sentence per fault that counts; none = ready. `subjects`: all there are.
  std::vector<std::string> Judge(const std::vector<std::string>& subjects,
                                 const std::vector<Trouble>& faults, SteadyTime now);

 private:
  const Millis grace_;
  std::mutex mu_;
  std::map<std::string, SteadyTime> well_;  // when each was last seen without a fault
};

}  // namespace lockstep::publisher
