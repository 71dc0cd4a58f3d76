#include "idempotency/counting_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "idempotency/memory_store.h"

namespace lockstep::idempotency {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CountingStore, CountsWhatWasKnownAndWhatBelongsToAnother) {
  MemoryStore memory;
  MetricsRegistry registry;
  CountingStore store(memory, registry);
  Request request;
  request.key = "k";
  request.hash = "h";
  const auto first = store.CheckAndPut(request);
  EXPECT_THAT(RenderMetrics(registry),
              AllOf(HasSubstr("tx_idempo_hits_total 0"), HasSubstr("tx_idempo_conflicts_total 0")));
  EXPECT_EQ(store.CheckAndPut(request)->outcome, Outcome::kBusy);
  ASSERT_TRUE(store.Finish({{}, "k", first->token}, "d").ok());
  EXPECT_EQ(store.CheckAndPut(request)->outcome, Outcome::kDone);
  request.hash = "other";
  EXPECT_EQ(store.CheckAndPut(request)->outcome, Outcome::kConflict);
  request.hash.clear();
  EXPECT_FALSE(store.CheckAndPut(request).ok());
  EXPECT_THAT(RenderMetrics(registry),
              AllOf(HasSubstr("tx_idempo_hits_total 2"), HasSubstr("tx_idempo_conflicts_total 1")));
}

}  // namespace
}  // namespace lockstep::idempotency
