#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "postgres/connection.h"
#include "tests/chaos/system/cluster.h"
#include "tests/chaos/system/fleet.h"
#include "tests/chaos/system/gate.h"
#include "tests/sagas/chaos/records.h"

namespace lockstep::sagachaos {

using chaos::Child;

struct WorldOptions {
  std::string folder;  // for everything; absolute
  std::string bin;     // with our programs
  std::string source;  // the folder of this program's own files
  uint64_t seed = 1;
};

// Everything of the run, set up as an operator would: Postgres, the HTTP participant (which nobody
// attacks), orchestrators, and a gate between these and Postgres. Of the main thread.
class World {
 public:
  explicit World(WorldOptions options);

  chaos::Cluster& server() { return server_; }
  chaos::Gate& gate() { return *gate_; }
  chaos::Fleet& orchestrators() { return *orchestrators_; }
  Child& participant() { return *participant_; }

  std::string url() const { return server_.Url("shop"); }
  std::string File(const std::string& name) const { return options_.folder + "/" + name; }
  // lockstepctl, under way.
  std::unique_ptr<Child> Control(std::vector<std::string> arguments) const;

  // A session for the run's own questions; tries until the server is there.
  std::unique_ptr<postgres::Connection> Connect() const;
  // What the participant has written so far, by saga.
  std::map<std::string, std::vector<Request>> ReadLedger() const;

  static constexpr Millis kLease{2'000};

 private:
  Child::Command Program(const std::string& name, std::vector<std::string> arguments) const;
  void MustRun(const std::string& name, std::vector<std::string> arguments) const;
  void StartParticipant();
  void MakeDatabase();
  // A file of the source folder, with the participant's port in place of 8080.
  std::string Fill(const std::string& name) const;

  const WorldOptions options_;
  chaos::Cluster server_;
  std::unique_ptr<Child> participant_;
  int participant_port_ = 0;
  std::unique_ptr<chaos::Gate> gate_;
  std::unique_ptr<chaos::Fleet> orchestrators_;
};

}  // namespace lockstep::sagachaos
