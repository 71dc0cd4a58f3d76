#include "fuzz/fuzz_target.h"
#include "fuzz/mapped.h"

// A protobuf payload, decoded and mapped.
LOCKSTEP_FUZZ_TARGET(mapping) {
  lockstep::fuzz::MapAndCheck(std::string(input), "application/protobuf");
}
