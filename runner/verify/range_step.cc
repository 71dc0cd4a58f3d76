#include "runner/verify/range_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/status.h"
#include "postgres/sql_error.h"
#include "verify/session.h"
#include "verify/tombstones.h"

namespace lockstep::runner {
namespace {

constexpr int64_t kScans = 24;  // of a pass, at most, where each range costs one

constexpr char kModest[] =
    "SET max_parallel_workers_per_gather = 0; SET jit = off; SET lock_timeout = '2s'; ";

absl::StatusOr<std::unique_ptr<postgres::Connection>> ConnectTo(const std::string& database,
                                                                Millis statement_timeout) {
  ASSIGN_OR_RETURN(auto connection,
                   postgres::Connection::Open({.url = database,
                                               .application_name = "lockstep-runner verify",
                                               .statement_timeout = statement_timeout,
                                               .settings = kModest}));
  RETURN_IF_ERROR(verify::MakeReadOnly(*connection));
  return connection;
}

}  // namespace

Millis PauseAfterRange(Millis every, Millis since_begun, Millis took, int64_t rows, int64_t left) {
  const Millis time = every * 4 / 5 - since_begun;
  if (time <= Millis(0) || rows <= 0) return std::min(took, every);
  const double ranges = std::max(1.0, static_cast<double>(left) / static_cast<double>(rows));
  const Millis share(static_cast<int64_t>(static_cast<double>(time.count()) / ranges));
  return std::min(std::max(took, share), every);
}

absl::StatusOr<std::unique_ptr<RangeStep>> RangeStep::Open(Parts parts) {
  auto step = std::unique_ptr<RangeStep>(new RangeStep(std::move(parts)));
  RETURN_IF_ERROR(step->Connect());
  return step;
}

absl::Status RangeStep::Connect() {
  ASSIGN_OR_RETURN(at_replica_, ConnectTo(parts_.replica, parts_.statement_timeout));
  auto source = ConnectTo(parts_.source, parts_.statement_timeout);
  if (!source.ok()) {
    return Unavailable("the source's database can't be reached: {}", MessageOf(source.status()));
  }
  at_source_ = *std::move(source);
  cancel_source_.emplace(parts_.stop, parts_.source, at_source_->backend_pid());
  cancel_replica_.emplace(parts_.stop, parts_.replica, at_replica_->backend_pid());
  RETURN_IF_ERROR(verify::RefuseStandby(*at_source_));
  ASSIGN_OR_RETURN(const auto types, verify::ReadKeyTypes(*at_replica_, parts_.table.replica));
  source_ = std::make_unique<verify::VerifySide>(*at_source_, parts_.table.source, types);
  replica_ = std::make_unique<verify::VerifySide>(*at_replica_, parts_.table.replica, types);
  for (verify::VerifySide* const side : {source_.get(), replica_.get()}) {
    side->BeforeEach(parts_.alive);
  }
  if (parts_.projector == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(deep_, verify::DeepCompare::Make(parts_.target.declaration, *parts_.projector,
                                                    parts_.table, *source_, *replica_));
  return absl::OkStatus();
}

std::string RangeStep::KeyedBy() const {
  std::string text;
  for (size_t i = 0; i < parts_.table.keys.size(); ++i) {
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", parts_.table.keys[i].column,
                        replica_->types()[i].sql);
  }
  return text;
}

verify::Verify RangeStep::MakeVerify() {
  verify::Verify::Parts parts{
      .source = *source_,
      .replica = *replica_,
      .passed =
          [this](const std::stop_token& stop) {
            return verify::Passage({.connection = at_source_.get()}, parts_.target.declaration,
                                   *at_replica_, parts_.schema, parts_.group, parts_.passage)
                .Await(stop);
          },
      .deleted =
          [this](const std::vector<verify::RowKey>& keys) {
            return verify::FindDeleted(*replica_, parts_.table, parts_.schema, parts_.group, keys);
          }};
  if (deep_) {
    parts.deep = [this](const verify::KeyRange& range, std::vector<verify::Difference>* found) {
      return deep_->InRange(range, found);
    };
    parts.deep_keys = [this](const std::vector<verify::RowKey>& keys,
                             std::vector<verify::Difference>* found) {
      return deep_->OfKeys(keys, found);
    };
  }
  return {std::move(parts), {}};
}

// By both sides, so that a range is large on neither: the one may have lost all that the other has.
absl::StatusOr<std::optional<verify::RowKey>> RangeStep::EndOf(const verify::KeyRange& range,
                                                               int64_t rows) {
  std::vector<verify::RowKey> ends;
  for (verify::VerifySide* const side : {source_.get(), replica_.get()}) {
    ASSIGN_OR_RETURN(const auto end, side->After(range, rows));
    if (end) ends.push_back(*end);
  }
  if (ends.empty()) return std::nullopt;
  return replica_->Least(ends);
}

absl::StatusOr<RangeStep::Compared> RangeStep::Next(const std::optional<verify::RowKey>& from,
                                                    int64_t rows, int64_t divided) {
  verify::KeyRange range{.from = from};
  for (verify::VerifySide* const side : {source_.get(), replica_.get()}) {
    ASSIGN_OR_RETURN(const bool sorted, side->Sorted());
    if (sorted) continue;
    ASSIGN_OR_RETURN(const int64_t all, side->Estimate({}));
    rows = std::max(rows, all / kScans);
  }
  ASSIGN_OR_RETURN(range.below, EndOf(range, std::max<int64_t>(1, rows / divided)));
  Compared compared{.next = range.below};
  ASSIGN_OR_RETURN(compared.result, MakeVerify().RunRange(range, parts_.stop));
  if (!range.below) return compared;
  for (verify::VerifySide* const side : {source_.get(), replica_.get()}) {
    ASSIGN_OR_RETURN(const int64_t left, side->Estimate({.from = range.below}));
    compared.left = std::max(compared.left, left);
  }
  return compared;
}

absl::StatusOr<verify::VerifyResult> RangeStep::Keys(const std::vector<verify::RowKey>& keys) {
  return MakeVerify().RunKeys(keys, parts_.stop);
}

}  // namespace lockstep::runner
