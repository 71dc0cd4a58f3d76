#pragma once

#include <string>

namespace lockstep::testing {

// SQL after which tests may write into the view <outbox>_status, and so say of a row what has
// become of it, as one row: an UPDATE changes the tables behind it. `outbox`: schema and
// name, plain.
std::string StatusCanBeWritten(const std::string& outbox);

}  // namespace lockstep::testing
