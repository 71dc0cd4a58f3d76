#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "postgres/connection.h"
#include "publisher/options/options.h"
#include "publisher/outbox/outbox_store.h"
#include "tests/support/test_database.h"

namespace lockstep::publisher {

// A database with one outbox, shop.outbox; partitioned, its first rows come into a partition of
// long ago, and so have the same sequences. Where a row is to be in a state that would take long to
// bring about: UPDATE shop.outbox_status (tests/support/outbox_status.h).
class OutboxTest : public ::testing::Test {
 protected:
  static constexpr char kTable[] = "shop.outbox";

  explicit OutboxTest(bool partitioned = false);

  struct EventSpec {
    std::string key = "k";
    int64_t version = 1;
    std::string topic = "shop.events";
    std::string payload = "payload";
    std::string tenant;  // empty = NULL
    std::string attributes = "{}";
  };
  // One committed event; answers its sequence.
  int64_t Enqueue(const EventSpec& event);
  int64_t Enqueue(const std::string& key, int64_t version) {
    return Enqueue({.key = key, .version = version});
  }
  // Versions 1..count of `key`, in one transaction.
  void EnqueueMany(const std::string& key, int count, const std::string& topic = "shop.events");

  // A claimer with a session of its own.
  struct Claimer {
    std::unique_ptr<postgres::Connection> connection;
    std::unique_ptr<OutboxStore> store;
    ClaimRequest request;

    // From the start, unless a cursor is given.
    Claim Take(ClaimCursor* cursor = nullptr);
  };
  Claimer NewClaimer(const std::string& name);

  // "k:1 k:2", in the order of the claim.
  static std::string Names(const Claim& claim);
  static RowPtr Shared(const OutboxRow& row) { return std::make_shared<const OutboxRow>(row); }
  static std::vector<PublishedRow> AsPublished(const Claim& claim);
  static RowFailure AsFailure(const OutboxRow& row, Millis delay, bool dead = false);

  int64_t Count(const std::string& where) {
    return db_.QueryInt("SELECT count(*) FROM shop.outbox_status WHERE " + where);
  }
  std::string Text(const std::string& expression, int64_t sequence);

  testing::TestDatabase db_;
};

}  // namespace lockstep::publisher
