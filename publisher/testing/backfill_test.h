#pragma once

#include <string>
#include <vector>

#include "publisher/backfill/backfill_store.h"
#include "publisher/testing/outbox_test.h"

namespace lockstep::publisher {

// A database with shop.outbox and the table shop.items (id bigint, name, tenant, version).
class BackfillTest : public OutboxTest {
 protected:
  BackfillTest() {
    db_.Run(
        "CREATE TABLE shop.items (id bigint PRIMARY KEY, name text, tenant text, version bigint)");
  }

  // Rows 1..count, each of version 1.
  void Fill(int count) {
    db_.Query(
        "INSERT INTO shop.items SELECT i, 'item ' || i, NULL, 1 FROM generate_series(1, $1::int) i",
        postgres::Params(count));
  }

  static Declaration Items() {
    Declaration declaration;
    declaration.name = "items";
    declaration.outbox = {"shop", "outbox"};
    declaration.topic = "shop.events";
    declaration.table = "shop.items";
    declaration.key = {"id"};
    declaration.aggregate_type = "item";
    declaration.aggregate_id = "id";
    declaration.version = "version";
    declaration.event_type = "shop.ItemChanged";
    declaration.fields = {{"id", "id"}, {"name", "name"}};
    return declaration;
  }
};

}  // namespace lockstep::publisher
