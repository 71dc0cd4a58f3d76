// Content dedup: of rows with the same content for the same space, one is sent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "publisher/testing/outbox_test.h"

namespace lockstep::publisher {
namespace {

using Kind = ContentVerdict::Kind;

class ContentsTest : public OutboxTest {
 protected:
  ContentsTest() { db_.Run("SELECT lockstep.set_dedup_window('shop.outbox', '1 hour')"); }

  int64_t Put(const std::string& key, int version, const std::string& payload,
              const std::string& space = "search") {
    return db_.QueryInt(fmt::format(
        "SELECT lockstep.enqueue('shop.outbox', 'shop.events', 'item', '{}', 'T', {}, '{}', "
        "target_space => '{}')",
        key, version, payload, space));
  }
  // What is said of a claim's rows, in their order: s(end), h(it), w(ait).
  static std::string Judge(Claimer& claimer, const Claim& claim) {
    const auto verdicts = claimer.store->JudgeContents(claim.rows);
    EXPECT_TRUE(verdicts.ok()) << verdicts.status();
    std::string said;
    for (const OutboxRow& row : claim.rows) {
      const auto found = verdicts->find(row.sequence);
      said += found == verdicts->end()            ? '-'
              : found->second.kind == Kind::kSend ? 's'
              : found->second.kind == Kind::kHit  ? 'h'
                                                  : 'w';
      if (found != verdicts->end() && found->second.kind == Kind::kHit) {
        said += "(" + found->second.message_id + ")";
      }
    }
    return said;
  }
  static void Publish(Claimer& claimer, const OutboxRow& row, const std::string& message_id) {
    EXPECT_TRUE(claimer.store->MarkPublished({{Shared(row), message_id}}).ok());
  }
};

TEST_F(ContentsTest, TheDatabaseMakesTheDigestOfRowsWithASpaceAlone) {
  Put("a", 1, "x");
  Enqueue("b", 1);
  EXPECT_EQ(Count("payload_sha = sha256('x')"), 1);
  EXPECT_EQ(Count("target_space IS NULL AND payload_sha IS NULL"), 1);
}

TEST_F(ContentsTest, OfTwoIdenticalRowsInAClaimOneIsSentAndTheOtherWaits) {
  Put("a", 1, "x");
  Put("b", 1, "x");
  Put("c", 1, "y");
  Put("d", 1, "x", "another space");
  Enqueue("e", 1);
  Claimer claimer = NewClaimer("one");
  EXPECT_EQ(Judge(claimer, claimer.Take()), "swss-");
}

TEST_F(ContentsTest, OfOneKeyTheFirstVersionIsSent) {
  Put("a", 1, "x");
  Put("a", 2, "x");
  Claimer claimer = NewClaimer("one");
  EXPECT_EQ(Judge(claimer, claimer.Take()), "sw");
}

TEST_F(ContentsTest, OfTwoIdenticalRowsOfTwoPublishersOneIsSent) {
  Put("a", 1, "x");
  Claimer one = NewClaimer("one");
  const Claim first = one.Take();
  Put("b", 1, "x");
  Claimer two = NewClaimer("two");
  const Claim second = two.Take();
  EXPECT_EQ(Judge(two, second), "s");
  EXPECT_EQ(Judge(one, first), "w");
  Publish(two, second.rows[0], "m7");
  EXPECT_EQ(Judge(one, first), "h(m7)");
}

TEST_F(ContentsTest, WhatWasSentIsAHitWithinTheWindow) {
  Put("a", 1, "x");
  Claimer claimer = NewClaimer("one");
  Claim claim = claimer.Take();
  EXPECT_EQ(Judge(claimer, claim), "s");
  Publish(claimer, claim.rows[0], "m1");
  Put("b", 1, "x");
  claim = claimer.Take();
  EXPECT_EQ(Judge(claimer, claim), "h(m1)");
  db_.Run(
      "UPDATE shop.outbox_status SET published_at = now() - interval '61 min' WHERE aggregate_id = "
      "'a'");
  EXPECT_EQ(Judge(claimer, claim), "s");
}

TEST_F(ContentsTest, ARowThatIsTriedAgainIsStillTheOneToBeSent) {
  Put("a", 1, "x");
  Put("b", 1, "x");
  Claimer claimer = NewClaimer("one");
  const Claim claim = claimer.Take();
  EXPECT_EQ(Judge(claimer, claim), "sw");
  EXPECT_EQ(Judge(claimer, claim), "sw");
}

TEST_F(ContentsTest, WhenTheFirstDiesIsQuarantinedOrGoneAnotherIsSent) {
  for (const char* change : {"UPDATE shop.outbox_status SET dead_at = now(), available_at = "
                             "'infinity', lock_token = NULL, "
                             "locked_by = NULL WHERE aggregate_id = 'a'",
                             "UPDATE shop.outbox_status SET quarantined_at = now(), available_at = "
                             "'infinity', lock_token = "
                             "NULL, locked_by = NULL WHERE aggregate_id = 'a'",
                             "DELETE FROM shop.outbox WHERE aggregate_id = 'a'"}) {
    db_.Run("DELETE FROM shop.outbox; DELETE FROM lockstep.outbox_contents");
    Put("a", 1, "x");
    Put("b", 1, "x");
    Put("c", 1, "x");
    Claimer claimer = NewClaimer("one");
    Claim claim = claimer.Take();
    EXPECT_EQ(Judge(claimer, claim), "sww");
    db_.Run(change);
    claim.rows.erase(claim.rows.begin());
    EXPECT_EQ(Judge(claimer, claim), "sw") << change;
  }
}

TEST_F(ContentsTest, OneThatIsHeldBehindADeadRowHoldsNoOtherKeyUp) {
  Put("a", 1, "x");
  Put("b", 1, "x");
  Claimer claimer = NewClaimer("one");
  Claim claim = claimer.Take();
  EXPECT_EQ(Judge(claimer, claim), "sw");
  ASSERT_TRUE(claimer.store->MarkFailed({{.row = Shared(claim.rows[0]), .delay = {}}}).ok());
  claim.rows.erase(claim.rows.begin());
  EXPECT_EQ(Judge(claimer, claim), "s");
}

// What the space was told last was something else.
TEST_F(ContentsTest, AnAggregateThatGoesBackToWhatItWasIsSentAgain) {
  for (const char* tenant : {"NULL", "'t1'"}) {
    db_.Run("DELETE FROM shop.outbox; DELETE FROM lockstep.outbox_contents");
    const auto put = [&](int version, const std::string& payload, const std::string& space) {
      db_.Run(fmt::format(
          "SELECT lockstep.enqueue('shop.outbox', 'shop.events', 'item', 'a', 'T', {}, '{}', "
          "tenant_id => {}, target_space => {})",
          version, payload, tenant, space));
    };
    Claimer claimer = NewClaimer("one");
    std::string said;
    int version = 0;
    for (const auto& [payload, space] : std::vector<std::pair<std::string, std::string>>{
             {"on", "'search'"},
             {"on", "'search'"},
             {"off", "'search'"},
             {"on", "'search'"},
             {"on", "'search'"},
             {"mail", "'mails'"},  // of no interest to the other space
             {"on", "'search'"},
             {"deleted", "NULL"},  // goes to all
             {"on", "'search'"},
             {"off", "'search'"}}) {
      put(++version, payload, space);
      const Claim claim = claimer.Take();
      ASSERT_EQ(claim.rows.size(), 1U);
      said += Judge(claimer, claim) + " ";
      Publish(claimer, claim.rows[0], fmt::format("m{}", version));
    }
    EXPECT_EQ(said, "s h(m1) s s h(m4) s h(m4) - s s ") << tenant;
  }
}

TEST_F(ContentsTest, GoingBackCountsWhileTheOtherStateIsStillUnderWay) {
  Put("a", 1, "on");
  Claimer claimer = NewClaimer("one");
  const Claim first = claimer.Take();
  EXPECT_EQ(Judge(claimer, first), "s");
  Publish(claimer, first.rows[0], "m1");
  Put("a", 2, "off");
  Put("a", 3, "on");
  EXPECT_EQ(Judge(claimer, claimer.Take()), "ss");
}

TEST_F(ContentsTest, ARowThatLeavesItsPlaceLetsAnotherHaveIt) {
  Put("a", 1, "x");
  Put("b", 1, "x");
  Claimer claimer = NewClaimer("one");
  Claim claim = claimer.Take();
  EXPECT_EQ(Judge(claimer, claim), "sw");
  ASSERT_TRUE(claimer.store->LeaveContents({Shared(claim.rows[0])}).ok());
  claim.rows.erase(claim.rows.begin());
  EXPECT_EQ(Judge(claimer, claim), "s");
}

TEST_F(ContentsTest, WithoutAWindowEverythingIsSent) {
  db_.Run("SELECT lockstep.set_dedup_window('shop.outbox', NULL)");
  Put("a", 1, "x");
  Put("b", 1, "x");
  Claimer claimer = NewClaimer("one");
  EXPECT_EQ(Judge(claimer, claimer.Take()), "ss");
}

}  // namespace
}  // namespace lockstep::publisher
