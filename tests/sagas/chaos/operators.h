#pragma once

#include <list>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/sagas/chaos/world.h"

namespace lockstep::sagachaos {

// People who cancel a few sagas that are under way, and pause others for a while, with lockstepctl.
// Of the main thread, which calls Tick often.
class Operators {
 public:
  Operators(const World& world, uint64_t seed) : world_(world), random_(seed ^ 0x0bea) {}

  // Sagas that have just begun: some of them will be meddled with.
  void Look(const std::vector<std::string>& ids);
  void Tick();
  // All that was paused has been resumed, and nothing is under way.
  bool idle() const { return orders_.empty(); }
  // So that it becomes idle soon: nobody is meddled with any more.
  void Finish();

  const std::set<std::string>& cancelled() const { return cancelled_; }
  int paused() const { return paused_; }
  int refused() const { return refused_; }

 private:
  struct Order {
    std::string what, id;
    SteadyTime at;
    int tries = 0;
    std::unique_ptr<Child> child;
  };
  // Whether it is done with.
  bool Answered(Order& order, int status);

  const World& world_;
  std::mt19937_64 random_;
  std::list<Order> orders_;
  std::set<std::string> cancelled_;
  int paused_ = 0, refused_ = 0;
};

}  // namespace lockstep::sagachaos
