#include "publisher/service/outbox_watch.h"

#include <algorithm>
#include <utility>

#include "platform/log/log.h"
#include "platform/status.h"
#include "postgres/identifier.h"
#include "publisher/backfill/backfill_store.h"
#include "publisher/outbox/presence.h"

namespace lockstep::publisher {
namespace {

constexpr Millis kWatchedEvery{2'000};
constexpr Millis kAgedEvery{1'000};

struct OutboxGauge {
  const char* name;
  const char* help;
  double (*value)(const OutboxRecord& record);
};

constexpr OutboxGauge kGauges[] = {
    {"outbox_pending", "rows not yet published, as last counted",
     [](const OutboxRecord& record) { return static_cast<double>(record.pending); }},
    {"outbox_locked", "rows under a lease, as last counted",
     [](const OutboxRecord& record) { return static_cast<double>(record.locked); }},
    {"outbox_oldest_pending_seconds",
     "age of the oldest row that may go; held and dead ones do not count",
     [](const OutboxRecord& record) { return static_cast<double>(record.oldest.count()) / 1000; }},
    {"outbox_dead", "dead rows that wait for a decision",
     [](const OutboxRecord& record) { return static_cast<double>(record.dead); }},
    {"outbox_quarantined", "rows in quarantine",
     [](const OutboxRecord& record) { return static_cast<double>(record.quarantined); }},
    {"backfill_rows_remaining", "rows that running backfills have still to send, about",
     [](const OutboxRecord& record) { return static_cast<double>(record.backfill_rows); }},
    {"backfills_failed", "backfills that stopped and wait for somebody",
     [](const OutboxRecord& record) { return static_cast<double>(record.failed_backfills); }},
};

// A look that took t is not taken again before 50 t have gone by.
constexpr int kCostLimit = 50;

}  // namespace

OutboxWatch::OutboxWatch(Parts parts)
    : parts_(std::move(parts)),
      replays_(CounterOf(parts_.metrics, "tx_replay_total",
                         "rows and messages that an operator sent again", {{"kind", "outbox"}})),
      load_(parts_.metrics, "publisher"),
      database_(parts_.database, Clock::System().Now()),
      aging_(kAgedEvery, [this] { Age(); }),
      ticker_(std::min(kWatchedEvery, parts_.every), [this] { Round(); }) {
  for (const std::string& table : parts_.tables) {
    for (const OutboxGauge& gauge : kGauges) {
      gauges_[table].push_back(
          &GaugeOf(parts_.metrics, gauge.name, gauge.help, {{"table", table}}));
    }
  }
}

void OutboxWatch::Round() {
  const WallTime now = Clock::System().Now();
  const SteadyTime began = Clock::System().Steady();
  if (began < not_before_) return database_.Skipped(now);
  const WallTime good = database_.good_since();
  if (!watched_ && !due_.exchange(false) && good != WallTime() &&
      web::AgeMs(good, now) < parts_.every.count()) {
    return database_.Skipped(now);
  }
  Look();
  not_before_ = began + kCostLimit * (Clock::System().Steady() - began);
  if (!watched_) session_.reset();
}

absl::StatusOr<OutboxRecord> OutboxWatch::Read(const std::string& table) {
  if (session_ == nullptr || session_->broken()) {
    ASSIGN_OR_RETURN(session_,
                     postgres::Connection::Open({.url = parts_.database,
                                                 .application_name = "lockstep-publisher status",
                                                 .statement_timeout = Millis(5'000)}));
  }
  ASSIGN_OR_RETURN(const auto name, postgres::QualifiedName::Parse(table));
  ASSIGN_OR_RETURN(OutboxRecord record, ReadOutboxRecord(*session_, name, audits_[table]));
  RETURN_IF_ERROR(ReadBackfills(name.Quoted(), record));
  return record;
}

absl::Status OutboxWatch::ReadBackfills(const std::string& table, OutboxRecord& record) {
  ASSIGN_OR_RETURN(const auto backfills, BackfillStore(*session_).List(table, 100, /*open=*/true));
  record.part["backfills"] = nlohmann::json::array();
  for (const BackfillRecord& backfill : backfills) {
    record.failed_backfills += backfill.state == "failed" ? 1 : 0;
    if (backfill.state == "running") {
      record.backfill_rows += std::max<int64_t>(0, backfill.rows_expected - backfill.rows_done);
    }
    nlohmann::json part = nlohmann::json::parse(backfill.ToJson().dump());
    for (const char* key : {"cursor", "highest"})
      part.erase(key);  // of rows: lockstepctl shows them
    record.part["backfills"].push_back(std::move(part));
  }
  return absl::OkStatus();
}

void OutboxWatch::Look() {
  absl::Status error;
  for (const std::string& table : parts_.tables) {
    auto record = Read(table);
    if (!record.ok()) {
      error = record.status();
      continue;  // one bad table must not hide the others
    }
    if (parts_.counts_replays(table)) replays_.Increment(static_cast<double>(record->replays));
    Show(table, *record);
    const std::scoped_lock lock(mu_);
    records_[table] = {*std::move(record), Clock::System().Steady()};
  }
  if (error.ok() && session_ != nullptr) error = load_.Read(*session_);
  if (error.ok()) error = Meet();
  if (!error.ok() && error != told_) {
    log::Warning("an outbox can't be read for the status page and its metrics; it is tried again",
                 {{"error", error}});
  }
  told_ = error;
  database_.Done(std::string(MessageOf(error)), Clock::System().Now());
}

absl::Status OutboxWatch::Meet() {
  Presence self{.instance = parts_.instance, .outboxes = parts_.tables, .started_at = started_at_};
  {
    const std::scoped_lock lock(mu_);
    self.address = address_;
  }
  if (session_ == nullptr || self.instance.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(Announce(*session_, self));
  met_ = true;
  ASSIGN_OR_RETURN(nlohmann::json publishers, ListPublishers(*session_));
  const std::scoped_lock lock(mu_);
  publishers_ = std::move(publishers);
  return absl::OkStatus();
}

// Short: the end must not wait for a database. Who can't say it is forgotten within the hour.
void OutboxWatch::SayGoodbye() {
  if (!met_.exchange(false) || database_.good_since() == WallTime()) return;
  const auto connection =
      postgres::Connection::Open({.url = parts_.database,
                                  .application_name = "lockstep-publisher status",
                                  .connect_timeout = Millis(1'000),
                                  .statement_timeout = Millis(1'000)});
  if (connection.ok()) Leave(**connection, parts_.instance).IgnoreError();
}

void OutboxWatch::SetAddress(const std::string& address) {
  {
    const std::scoped_lock lock(mu_);
    address_ = address;
  }
  due_ = true;
}

nlohmann::json OutboxWatch::Publishers() const {
  const std::scoped_lock lock(mu_);
  return publishers_;
}

OutboxRecord OutboxWatch::Of(const std::string& table) const {
  const std::scoped_lock lock(mu_);
  const auto found = records_.find(table);
  if (found == records_.end()) return {};
  auto [record, read_at] = found->second;
  if (record.oldest > Millis(0)) {
    record.oldest += std::chrono::duration_cast<Millis>(Clock::System().Steady() - read_at);
  }
  return record;
}

void OutboxWatch::Show(const std::string& table, const OutboxRecord& record) {
  for (size_t i = 0; i < std::size(kGauges); ++i) {
    gauges_.at(table)[i]->Set(kGauges[i].value(record));
  }
}

void OutboxWatch::Age() {
  for (const std::string& table : parts_.tables) {
    if (const OutboxRecord record = Of(table); record.known) Show(table, record);
  }
}

}  // namespace lockstep::publisher
