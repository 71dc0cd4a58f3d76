#include <gtest/gtest.h>

#include "platform/log/log.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  lockstep::log::Configure({.level = lockstep::log::Level::kWarning});
  return RUN_ALL_TESTS();
}
