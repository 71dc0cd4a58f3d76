#pragma once

#include <span>
#include <vector>

#include "postgres/connection.h"
#include "runner/message/inbound.h"

namespace lockstep::runner {

// Decides which messages may be applied now. The others are held, unacked, until the session ends,
// and given back then. A rebuild uses it to bring its shadow level with the live slot. Called on
// the lanes' threads with the lane's connection.
class Admission {
 public:
  virtual ~Admission() = default;
  virtual std::vector<bool> Admit(postgres::Connection& connection,
                                  std::span<Inbound* const> items) const = 0;
};

}  // namespace lockstep::runner
