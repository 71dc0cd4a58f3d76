#include "tests/conformance/suite.h"

namespace lockstep::conformance {

INSTANTIATE_TEST_SUITE_P(All, Bus, ::testing::ValuesIn(Setups()),
                         [](const auto& setup) { return setup.param.name; });

}  // namespace lockstep::conformance
