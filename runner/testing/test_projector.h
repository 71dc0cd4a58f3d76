#pragma once

#include <memory>
#include <string>
#include <vector>

#include "projections/model/projector.h"

namespace lockstep::runner {

// A projector for tests, plain enough to be trusted: one table and one counter per aggregate.
// The payload is JSON: {"set": {"a": "…", "b": "…"}} replaces, with "merge": true it merges;
// {"ignore": true}; {"refuse": "why"} can't be mapped; {"sql": "…"} runs a statement first, which
// is how tests make things fail.
class TestProjector : public projections::Projector {
 public:
  static constexpr char kTables[] = R"(
    CREATE SCHEMA rm;
    CREATE TABLE rm.items (id text PRIMARY KEY, version bigint NOT NULL, a text, b text);
    CREATE TABLE rm.counters (id text PRIMARY KEY, n bigint NOT NULL);
    CREATE TABLE rm.history (seq bigint GENERATED ALWAYS AS IDENTITY, id text, version bigint);)";

  absl::StatusOr<std::unique_ptr<projections::Change>> Map(
      const projections::Event& event) const override;
  absl::StatusOr<std::vector<projections::Outcome>> Apply(
      postgres::Transaction& transaction, const std::vector<const projections::Change*>& changes,
      const projections::ApplyOptions& options) const override;
  bool ParksOnGap(const projections::Event& event) const override;
  absl::Status Check(postgres::Connection& connection) const override;
  std::vector<std::string> Tables() const override { return {"rm.items", "rm.counters"}; }
  bool MayPark() const override { return may_park; }

  bool may_park = true;
};

}  // namespace lockstep::runner
