#pragma once

#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "postgres/connection.h"
#include "publisher/backfill/declaration.h"
#include "publisher/backfill/source_query.h"
#include "verify/passage.h"
#include "verify/repair_plan.h"

namespace lockstep::verify {

// What a repair will send: known before it is created, so that afterwards its messages can be
// waited for by their ids, over whichever subscription they come and however long its backlog is.
// Owned by one thread.
class RepairArrival {
 public:
  // REQUIRES: the declaration and the source's connection outlive it.
  static absl::StatusOr<RepairArrival> Expect(const publisher::Declaration& declaration,
                                              postgres::Connection& source, const RepairPlan& plan);

  // REQUIRES: the repair of that id is done. A row that the source has changed since is not waited
  // for: its event carries it.
  absl::Status Await(const std::string& repair, Passage& passage, const std::stop_token& stop);

 private:
  struct Expected {
    publisher::KeyTexts key;  // of the source; empty = a ghost of which it is not known
    std::string aggregate_key;
    int64_t version = 0;
    bool ghost = false;
  };

  RepairArrival(const publisher::Declaration& declaration, postgres::Connection& source,
                publisher::SourceQuery query)
      : declaration_(declaration), source_(source), query_(std::move(query)) {}
  // The versions of those of the keys that the source has.
  absl::StatusOr<std::map<publisher::KeyTexts, publisher::SourceRow>> Read(
      const std::vector<publisher::KeyTexts>& keys) const;

  const publisher::Declaration& declaration_;
  postgres::Connection& source_;
  publisher::SourceQuery query_;
  std::vector<Expected> expected_;
};

}  // namespace lockstep::verify
