#include <gtest/gtest.h>

#include "envelope/event.h"

namespace lockstep::envelope {
namespace {

TEST(TraceContext, FindsTheTraceId) {
  EXPECT_EQ(TraceId("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(TraceId("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"),
            "4bf92f3577b34da6a3ce929d0e0e4736")
      << "a later version may be longer";
}

TEST(TraceContext, TakesNothingElseForATraceId) {
  for (const char* none : {"", "4bf92f3577b34da6a3ce929d0e0e4736",
                           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
                           "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
                           "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                           "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                           "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                           "00-4bf92f3577b34da6a3ce929d0e0e473\n-00f067aa0ba902b7-01",
                           "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}) {
    EXPECT_EQ(TraceId(none), "") << none;
  }
}

}  // namespace
}  // namespace lockstep::envelope
