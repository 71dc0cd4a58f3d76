#include "runner/testing/test_projector.h"

#include <nlohmann/json.hpp>

#include "platform/status.h"
#include "postgres/connection.h"

namespace lockstep::runner {
namespace {

using projections::Change;
using projections::Outcome;

struct TestChange : Change {
  std::string id;
  int64_t version = 0;
  bool merge = false;
  bool ignore = false;
  bool ignored() const override { return ignore; }
  bool snapshot = false;
  std::optional<std::string> a, b;
  std::string sql;
};

std::optional<std::string> Text(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

constexpr char kReplace[] =
    "INSERT INTO rm.items AS i (id, version, a, b) VALUES ($1, $2, $3, $4) "
    "ON CONFLICT (id) DO UPDATE SET version = EXCLUDED.version, a = EXCLUDED.a, b = EXCLUDED.b "
    "WHERE i.version < EXCLUDED.version";
constexpr char kMerge[] =
    "INSERT INTO rm.items AS i (id, version, a, b) VALUES ($1, $2, $3, $4) "
    "ON CONFLICT (id) DO UPDATE SET version = EXCLUDED.version, a = coalesce(EXCLUDED.a, i.a), "
    "b = coalesce(EXCLUDED.b, i.b) WHERE i.version < EXCLUDED.version";
constexpr char kCount[] =
    "INSERT INTO rm.counters AS c (id, n) VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET n = c.n + "
    "1";

absl::StatusOr<Outcome> ApplyOne(postgres::Transaction& transaction, const TestChange& change,
                                 bool covered) {
  using postgres::Params;
  if (!change.sql.empty()) RETURN_IF_ERROR(transaction.Execute(change.sql).status());
  if (change.ignore) return Outcome::kIgnored;
  ASSIGN_OR_RETURN(const auto written,
                   transaction.Execute(change.merge ? kMerge : kReplace, change.id, change.version,
                                       change.a, change.b));
  if (written.affected_rows() == 0) {
    ASSIGN_OR_RETURN(const auto stored,
                     transaction.Execute("SELECT version FROM rm.items WHERE id = $1", change.id));
    const bool may_be_there = covered || change.snapshot;
    return stored.Int(0, 0) == change.version && !may_be_there ? Outcome::kConflict
                                                               : Outcome::kSuperseded;
  }
  RETURN_IF_ERROR(transaction.Execute(kCount, change.id).status());
  RETURN_IF_ERROR(transaction
                      .Execute("INSERT INTO rm.history (id, version) VALUES ($1, $2)", change.id,
                               change.version)
                      .status());
  return Outcome::kApplied;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Change>> TestProjector::Map(const projections::Event& event) const {
  const auto json = nlohmann::json::parse(event.payload, nullptr, false);
  if (!json.is_object()) return InvalidArgument("the payload is not JSON");
  if (json.contains("refuse")) return absl::InvalidArgumentError(Text(json, "refuse").value_or(""));
  auto change = std::make_unique<TestChange>();
  change->id = event.aggregate.id;
  change->version = event.version;
  change->snapshot = event.is_snapshot();
  change->merge = json.value("merge", false);
  change->ignore = json.value("ignore", false);
  change->sql = json.value("sql", "");
  const auto set = json.value("set", nlohmann::json::object());
  change->a = Text(set, "a");
  change->b = Text(set, "b");
  return change;
}

absl::StatusOr<std::vector<Outcome>> TestProjector::Apply(
    postgres::Transaction& transaction, const std::vector<const Change*>& changes,
    const projections::ApplyOptions& options) const {
  std::vector<Outcome> outcomes;
  for (size_t i = 0; i < changes.size(); ++i) {
    const bool covered = !options.covered.empty() && options.covered[i];
    ASSIGN_OR_RETURN(const Outcome outcome,
                     ApplyOne(transaction, static_cast<const TestChange&>(*changes[i]), covered));
    outcomes.push_back(outcome);
  }
  return outcomes;
}

bool TestProjector::ParksOnGap(const projections::Event& event) const {
  return may_park && event.payload.find("\"merge\":true") != std::string::npos;
}

absl::Status TestProjector::Check(postgres::Connection& connection) const {
  if (connection.Execute("SELECT id, version, a, b FROM rm.items LIMIT 0").ok()) {
    return absl::OkStatus();
  }
  return FailedPrecondition("table rm.items is missing");
}

}  // namespace lockstep::runner
