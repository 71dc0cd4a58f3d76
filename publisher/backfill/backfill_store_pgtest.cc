#include <gmock/gmock.h>

#include "platform/status.h"
#include "publisher/backfill/backfill_store.h"
#include "publisher/outbox/outboxes.h"
#include "publisher/testing/backfill_test.h"

namespace lockstep::publisher {
namespace {

using ::testing::HasSubstr;

constexpr char kTokenA[] = "00000000-0000-4000-8000-00000000000a";
constexpr char kTokenB[] = "00000000-0000-4000-8000-00000000000b";
constexpr Millis kTtl{60'000};

class BackfillStoreTest : public BackfillTest {
 protected:
  std::string Create() { return store_.Create(Items(), 10, "ann@host", "adoption").value(); }
  std::optional<BackfillRecord> Claim(const char* token) {
    return store_.Claim({kTable}, token, std::string("w") + token[35], kTtl).value();
  }
  void ExpireLeases() {
    db_.Run(
        "UPDATE lockstep.backfills SET lease_until = now() - interval '1 s' "
        "WHERE lease_until IS NOT NULL");
  }
  std::string Audit() {
    return std::string(
        db_.Query("SELECT string_agg(action || ' by ' || actor || coalesce(': ' || note, ''), '; ' "
                  "ORDER BY id) FROM lockstep.outbox_audit")
            .Text(0, 0));
  }

  std::unique_ptr<postgres::Connection> connection_ = db_.Connect();
  BackfillStore store_{*connection_};
};

TEST_F(BackfillStoreTest, KeepsTheDeclarationAndTheDescriptorSet) {
  Declaration declaration = Items();
  declaration.query = "SELECT * FROM shop.items WHERE name <> 'it''s'";
  declaration.table = "";
  declaration.tenant = "tenant";
  declaration.rows_per_second = 20;
  const std::string id = store_.Create(declaration, 10, "ann@host", "").value();
  const BackfillRecord record = store_.Find(id).value();
  const Declaration kept = Declaration::FromJson(record.declaration, record.descriptors).value();
  EXPECT_EQ(kept.ToJson(), declaration.ToJson());
  EXPECT_EQ(record.state, "running");
  EXPECT_EQ(record.outbox, "shop.outbox");
  EXPECT_FALSE(record.begun_at.has_value());
}

TEST_F(BackfillStoreTest, HasOneAtATimeUnderAName) {
  const std::string first = Create();
  const auto second = store_.Create(Items(), 10, "ann@host", "");
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(store_.Apply(BackfillStore::Change::kCancel, first, "bob@host", "wrong").ok());
  EXPECT_TRUE(store_.Create(Items(), 10, "ann@host", "").ok());
}

// The first one was made while the server's clock was an hour ahead.
TEST_F(BackfillStoreTest, ANameMeansTheOneThatHasNotEnded) {
  const std::string first = Create();
  ASSERT_TRUE(store_.Apply(BackfillStore::Change::kCancel, first, "bob@host", "wrong").ok());
  db_.Run("UPDATE lockstep.backfills SET created_at = now() + interval '1 hour'");
  const std::string second = Create();
  EXPECT_EQ(store_.Find("items").value().id, second);
}

TEST_F(BackfillStoreTest, OneWorkerAtATimeHasTheLeaseAndAnotherTakesItOver) {
  const std::string id = Create();
  ASSERT_TRUE(Claim(kTokenA).has_value());
  EXPECT_FALSE(Claim(kTokenB).has_value());
  ASSERT_TRUE(store_.Begin(id, kTokenA, "0/1", KeyTexts{"9"}, 9).value());
  ASSERT_TRUE(store_.Advance(id, kTokenA, {"5"}, 5, kTtl).value());
  ExpireLeases();
  const auto taken = Claim(kTokenB);
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->cursor, KeyTexts{"5"});
  EXPECT_EQ(taken->highest, KeyTexts{"9"});
  EXPECT_EQ(taken->rows_done, 5);
  // The one that lost it writes nothing any more.
  EXPECT_FALSE(store_.Advance(id, kTokenA, {"7"}, 2, kTtl).value());
  EXPECT_FALSE(store_.Fail(id, kTokenA, "no", "wa").value());
  EXPECT_FALSE(store_.Finish(id, kTokenA, "wa").value());
  EXPECT_EQ(store_.Find(id)->cursor, KeyTexts{"5"});
}

TEST_F(BackfillStoreTest, AClockThatWentBackLeavesNoLeaseAndNoWaitOfAnHour) {
  Create();
  ASSERT_TRUE(Claim(kTokenA).has_value());
  db_.Run("UPDATE lockstep.backfills SET lease_until = now() + interval '1 h'");
  ASSERT_TRUE(Claim(kTokenB).has_value());
  db_.Run(
      "UPDATE lockstep.backfills SET lease_token = NULL, lease_owner = NULL, lease_until = NULL, "
      "retry_at = now() + interval '1 h'");
  EXPECT_TRUE(Claim(kTokenA).has_value());
}

TEST_F(BackfillStoreTest, AnOperatorPausesResumesAndCancelsWithAnAudit) {
  const std::string id = Create();
  ASSERT_TRUE(Claim(kTokenA).has_value());
  using Change = BackfillStore::Change;
  EXPECT_EQ(store_.Apply(Change::kPause, id, "ann", "lunch").value(), "paused");
  EXPECT_FALSE(store_.Advance(id, kTokenA, {"5"}, 5, kTtl).value());  // the worker hears of it so
  EXPECT_FALSE(Claim(kTokenB).has_value());
  const auto again = store_.Apply(Change::kPause, id, "ann", "");
  EXPECT_THAT(MessageOf(again.status()), HasSubstr("is paused"));
  EXPECT_EQ(store_.Apply(Change::kResume, id, "ann", "").value(), "running");
  ASSERT_TRUE(Claim(kTokenB).has_value());
  ASSERT_TRUE(store_.Fail(id, kTokenB, "no such column", "wb").value());
  EXPECT_EQ(store_.Find(id)->last_error, "no such column");
  EXPECT_FALSE(Claim(kTokenB).has_value());
  EXPECT_EQ(store_.Apply(Change::kResume, id, "ann", "mended").value(), "running");
  EXPECT_EQ(store_.Find(id)->last_error, "");
  EXPECT_EQ(store_.Apply(Change::kCancel, id, "bob", "enough").value(), "cancelled");
  EXPECT_FALSE(store_.Apply(Change::kResume, id, "bob", "").ok());
  EXPECT_EQ(
      Audit(),
      "backfill start by ann@host: adoption; backfill pause by ann: lunch; backfill resume by "
      "ann; backfill failed by wb: no such column; backfill resume by ann: mended; backfill "
      "cancel by bob: enough");
  EXPECT_EQ(store_.ReadAudit(*store_.Find(id))->size(), 6U);
}

TEST_F(BackfillStoreTest, AFaultThatMayPassEndsTheLeaseUntilTheNextTry) {
  const std::string id = Create();
  ASSERT_TRUE(Claim(kTokenA).has_value());
  ASSERT_TRUE(store_.Retry(id, kTokenA, "the bus is away", Millis(60'000)).value());
  EXPECT_FALSE(Claim(kTokenB).has_value());
  EXPECT_EQ(store_.Find(id)->failures, 1);
  db_.Run("UPDATE lockstep.backfills SET retry_at = now()");
  ASSERT_TRUE(Claim(kTokenB).has_value());
  ASSERT_TRUE(store_.Advance(id, kTokenB, {"1"}, 1, kTtl).value());
  EXPECT_EQ(store_.Find(id)->failures, 0);
  EXPECT_EQ(store_.Find(id)->last_error, "");
}

TEST_F(BackfillStoreTest, ARepairHasItsKeysAndGhosts) {
  Create();  // one of the same name does not keep a repair out
  Ghost ghost{{"9"}, "9", "acme", 7, {{"id", 9}}};
  Ghost unknown{{}, "10", std::nullopt, 3, {{"id", 10}}};
  const std::string id =
      store_.CreateRepair(Items(), {{"1"}, {"it's \"2\""}}, {ghost, unknown}, "ann", "").value();
  const auto items = store_.RepairItems(id, 1, 10).value();
  ASSERT_EQ(items.size(), 3U);
  EXPECT_EQ(items[0].n, 2);
  EXPECT_EQ(items[0].key, KeyTexts{"it's \"2\""});
  EXPECT_FALSE(items[0].ghost.has_value());
  ASSERT_TRUE(items[1].ghost.has_value());
  EXPECT_EQ(items[1].ghost->key, KeyTexts{"9"});
  EXPECT_EQ(items[1].ghost->tenant_id, "acme");
  EXPECT_EQ(items[1].ghost->version, 7);
  EXPECT_EQ(items[1].ghost->payload["id"], 9);
  EXPECT_TRUE(items[2].key.empty());
  EXPECT_FALSE(items[2].ghost->tenant_id.has_value());
  EXPECT_FALSE(store_.CreateRepair(Items(), {}, {}, "ann", "").ok());
  EXPECT_FALSE(store_.CreateRepair(Items(), {{"1", "2"}}, {}, "ann", "").ok());
  ASSERT_TRUE(store_.Apply(BackfillStore::Change::kCancel, id, "ann", "").ok());
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep.backfill_keys"), 0);
}

// Roles of two outboxes in one database.
TEST_F(BackfillStoreTest, EachRoleMayDoItsPartAndNothingToAnotherOutbox) {
  const std::string suffix = db_.name();
  const auto role = [&](const std::string& name) { return name + "_" + suffix; };
  db_.Run("SELECT lockstep.create_outbox('other.outbox')");
  for (const char* name : {"pub", "oper", "look", "stranger"}) {
    db_.Run("CREATE ROLE " + role(name) + " LOGIN");
  }
  const auto grant = [&](const std::string& function, const std::string& outbox,
                         const std::string& name) {
    db_.Run("SELECT lockstep." + function + "('" + outbox + "', '" + role(name) + "')");
  };
  grant("grant_publisher", "shop.outbox", "pub");
  grant("grant_operator", "shop.outbox", "oper");
  grant("grant_reader", "shop.outbox", "look");
  grant("grant_operator", "other.outbox", "stranger");
  grant("grant_publisher", "other.outbox", "stranger");
  const auto as = [&](const std::string& name) {
    return postgres::Connection::Open({.url = db_.UrlAs(role(name))}).value();
  };
  const auto pub = as("pub");
  const auto oper = as("oper");
  const auto look = as("look");
  const auto stranger = as("stranger");
  const auto refused = BackfillStore(*pub).Create(Items(), 1, "x", "");
  EXPECT_THAT(MessageOf(refused.status()), HasSubstr("grant_operator"));
  EXPECT_FALSE(BackfillStore(*look).Create(Items(), 1, "x", "").ok());
  EXPECT_FALSE(BackfillStore(*stranger).Create(Items(), 1, "x", "").ok());

  const auto id = BackfillStore(*oper).CreateRepair(Items(), {{"1"}}, {}, "oper", "");
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(BackfillStore(*look).List()->size(), 1U);
  EXPECT_EQ(BackfillStore(*stranger).List()->size(), 0U);
  EXPECT_FALSE(BackfillStore(*stranger).Claim({kTable}, kTokenB, "s", kTtl).value().has_value());
  EXPECT_FALSE(BackfillStore(*stranger).Apply(BackfillStore::Change::kCancel, *id, "s", "").ok());
  EXPECT_EQ(stranger->Number("SELECT count(*) FROM lockstep.backfill_keys").value(), 0);
  EXPECT_FALSE(BackfillStore(*look).Apply(BackfillStore::Change::kCancel, *id, "l", "").ok());

  BackfillStore worker(*pub);
  ASSERT_TRUE(worker.Claim({kTable}, kTokenA, "p", kTtl).value().has_value());
  ASSERT_TRUE(worker.Begin(*id, kTokenA, worker.CurrentLsn().value(), std::nullopt, 1).value());
  EXPECT_EQ(worker.RepairItems(*id, 0, 10)->size(), 1U);
  ASSERT_TRUE(worker.Advance(*id, kTokenA, {"1"}, 1, kTtl).value());
  EXPECT_FALSE(pub->Run("UPDATE lockstep.backfills SET declaration = '{}'").ok());
  ASSERT_TRUE(worker.Finish(*id, kTokenA, "p").value());
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep.backfill_keys"), 0);
  // What was given can be taken back whole, or the roles could not go.
  for (const char* name : {"pub", "oper", "look", "stranger"}) {
    for (const char* outbox : {"shop.outbox", "other.outbox"}) grant("revoke_rights", outbox, name);
    db_.Run("DROP ROLE " + role(name));
  }
}

TEST_F(BackfillStoreTest, GoesWithItsOutbox) {
  Create();
  db_.Run("SELECT lockstep.drop_outbox('shop.outbox')");
  EXPECT_EQ(store_.List()->size(), 0U);
}

}  // namespace
}  // namespace lockstep::publisher
