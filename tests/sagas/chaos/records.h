#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep::sagachaos {

// Times are milliseconds since 1970, by the one clock of this machine.

// What the load wanted of a saga, and what was done to it by hand. Its key says which one it is.
struct Plan {
  std::string refuse;        // the step that is refused for good; empty = none
  bool approve = false;      // it waits for an approval
  bool may_cancel = false;   // somebody asked for that
  bool said_failed = false;  // a person said that its charge in doubt has not happened
  bool said_done = false;    // … that it has
};

// A line of the participant's ledger.
struct Request {
  int64_t at = 0;
  std::string path, saga, key, answer, did;
};

// An effect inside the database: a row that a function of a sql: step wrote, or an outbox row.
struct Effect {
  double at = 0;
  std::string saga, step;
  bool undo = false;
};

struct Step {
  std::string name, state, last_error;
  int attempts = 0;
  bool in_doubt = false;
};

// A change of state, of the saga (step empty) or of a step.
struct Change {
  std::string step, action, from, to;
};

// A saga as the database has it in the end, with all that happened to it anywhere.
struct Saga {
  std::string id, key, state, failed_step, error;
  bool dead = false;
  std::vector<Step> steps;
  std::vector<Request> requests;  // in the order of arrival
  std::vector<Effect> effects;
  std::vector<Change> changes;
};

// What was done to an orchestrator or the database: why somebody may not know what he did.
struct Attack {
  int64_t begin = 0, end = 0;
  std::string what;
};

}  // namespace lockstep::sagachaos
