#include "fuzz/fuzz_target.h"
#include "fuzz/mapped.h"

// A JSON payload, decoded and mapped.
LOCKSTEP_FUZZ_TARGET(json) { lockstep::fuzz::MapAndCheck(std::string(input), "application/json"); }
