#pragma once

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/sagas/chaos/customers.h"
#include "tests/sagas/chaos/records.h"
#include "tests/sagas/chaos/world.h"

namespace lockstep::sagachaos {

// What goes wrong with orchestrators and Postgres, one thing after another, by a seed. Of the main
// thread, which calls Tick often until it is over.
class Storm {
 public:
  Storm(World& world, Customers& customers, uint64_t seed);

  void Tick();
  // Whoever stands still goes on, whoever is away comes back; nothing goes wrong any more.
  void Calm();

  // In the order of their begin.
  std::vector<Attack> attacks() const;
  const std::map<std::string, int>& counts() const { return counts_; }

 private:
  void Strike();
  void StopWithFullHands();
  void Note(const std::string& what, Millis lasts);

  World& world_;
  Customers& customers_;
  std::mt19937_64 random_;
  SteadyTime next_;
  std::optional<SteadyTime> stops_;  // with full hands
  std::unique_ptr<Child> lock_;
  std::optional<SteadyTime> flows_;  // the gate is stalled until then
  std::vector<Attack> attacks_;
  std::map<std::string, int> counts_;
};

}  // namespace lockstep::sagachaos
