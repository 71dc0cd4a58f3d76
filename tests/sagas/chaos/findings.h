#pragma once

#include <map>
#include <string>
#include <vector>

#include "postgres/connection.h"
#include "tests/sagas/chaos/records.h"
#include "tests/sagas/chaos/world.h"

namespace lockstep::sagachaos {

// Sagas that stand still until a person settles a step in doubt.
struct Doubt {
  std::string id, step;
  int64_t since = 0;  // when the step was begun
};

// What the database and the participant know, put together. Every function ends the program when
// the database can't be asked.
int CountUnderWay(postgres::Connection& connection);
std::vector<Doubt> ReadDoubts(postgres::Connection& connection);
// By id.
std::map<std::string, Saga> ReadSagas(postgres::Connection& connection, const World& world);
// What must not be there when everybody has gone home: work in the queue, leases, sessions, locks.
// The server may need a while to see that somebody has gone.
std::vector<std::string> FindLeftovers(postgres::Connection& connection, Millis patience);
// A sentence per state: how many.
std::string Describe(postgres::Connection& connection);

}  // namespace lockstep::sagachaos
