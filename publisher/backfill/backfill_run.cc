#include "publisher/backfill/backfill_run.h"

#include <algorithm>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <utility>

#include "platform/daemon/service_thread.h"
#include "platform/duration.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "platform/text.h"
#include "postgres/cancel_on_stop.h"
#include "postgres/sql_error.h"
#include "publisher/backfill/source_check.h"
#include "publisher/dispatch/failure.h"

namespace lockstep::publisher {
namespace {

// What is read at the start (the highest key, NULLs, twins) may take as long as `lockstepctl
// backfill check` may.
constexpr Millis kBeginTimeout{3'600'000};
constexpr Millis kReplicaPatience{30'000};
constexpr Millis kReplicaLook{200};
// Of a page, for those who wait until a consumer has it.
constexpr size_t kLastEvents = 100;

// What a standby has replayed, or the other server has written.
constexpr char kReplayed[] = R"sql(
SELECT system_identifier::text AS cluster, pg_is_in_recovery() AS standby,
       CASE WHEN pg_is_in_recovery() THEN coalesce(pg_last_wal_replay_lsn() >= $1::pg_lsn, false)
            ELSE pg_current_wal_insert_lsn() >= $1::pg_lsn
                 AND left(pg_walfile_name(pg_current_wal_lsn()), 8) = $2 END AS there
FROM pg_control_system())sql";

// A page may take longer than its budget, but not without end: its snapshot holds back VACUUM.
Millis PageTimeout(Millis chunk) { return std::clamp(5 * chunk, Millis(2'000), Millis(50'000)); }

absl::StatusOr<std::unique_ptr<postgres::Connection>> Connect(const std::string& database,
                                                              Millis statement_timeout) {
  return postgres::Connection::Open({.url = database,
                                     .application_name = "lockstep-publisher backfill",
                                     .statement_timeout = statement_timeout});
}

}  // namespace

// Filled on a thread of the transport, which may outlive the run.
struct BackfillRun::Answers {
  std::mutex mu;
  std::condition_variable_any changed;
  bool there = false;
  absl::Status first_fault;
};

BackfillRun::BackfillRun(Parts parts, const BackfillRecord& record, const Declaration& declaration)
    : parts_(std::move(parts)),
      record_(record),
      declaration_(declaration),
      highest_(record.highest),
      size_(declaration.chunk, declaration.rows_per_second) {}

bool BackfillRun::MayPass(const absl::Status& fault) {
  if (absl::IsUnavailable(fault)) return true;
  const auto kind = postgres::Classify(fault);
  return kind == postgres::ErrorClass::kTransient || kind == postgres::ErrorClass::kInDoubt;
}

absl::Status BackfillRun::Open() {
  ASSIGN_OR_RETURN(source_, Connect(parts_.database, PageTimeout(declaration_.chunk)));
  ASSIGN_OR_RETURN(query_, SourceQuery::Make(*source_, declaration_));
  ASSIGN_OR_RETURN(PayloadMaker payloads, PayloadMaker::Make(declaration_));
  messages_.emplace(declaration_, record_.id, record_.repair, std::move(payloads));
  return absl::OkStatus();
}

absl::Status BackfillRun::AwaitReplica(const std::string& lsn) {
  if (!parts_.replica) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto primary, parts_.store.Lineage());
  const SteadyTime end = Clock::System().Steady() + kReplicaPatience;
  while (true) {
    ASSIGN_OR_RETURN(const auto found, source_->Execute(kReplayed, lsn, primary.timeline));
    if (found[0].Text("cluster") != primary.cluster) {
      return InvalidArgument(
          "`backfill.database` is a database of another cluster than `database`: name a streaming "
          "replica, or leave it out");
    }
    if (found[0].Bool("there")) return absl::OkStatus();
    if (!found[0].Bool("standby")) {
      return Unavailable(
          "the server of `backfill.database` is no replica (it was promoted, or restored) and is "
          "not the one of `database` either: what it has is not what the outbox's has");
    }
    if (Clock::System().Steady() > end || SleepUnlessStopped(parts_.stop, kReplicaLook)) {
      return Unavailable("the replica has not come to {}, where the backfill began", lsn);
    }
  }
}

absl::StatusOr<int64_t> BackfillRun::LookAtSource(const std::stop_token& lost) {
  ASSIGN_OR_RETURN(const auto patient, Connect(parts_.database, kBeginTimeout));
  const postgres::CancelOnStop stopped(parts_.stop, parts_.database, patient->backend_pid());
  const postgres::CancelOnStop dropped(lost, parts_.database, patient->backend_pid());
  ASSIGN_OR_RETURN(const bool nulls, query_->HasNullKeys(*patient));
  if (nulls) {
    return InvalidArgument("{} has rows with NULL in the key ({}): no order holds them",
                           declaration_.SourceName(), fmt::join(declaration_.key, ", "));
  }
  const auto twins = FindTwins(*patient, declaration_);
  if (!twins.ok()) return query_->Explain(twins.status());
  if (!twins->empty()) return InvalidArgument("{}", *twins);
  ASSIGN_OR_RETURN(highest_, query_->Highest(*patient));
  return query_->Estimate(*patient);
}

absl::StatusOr<bool> BackfillRun::Begin() {
  if (record_.begun_at.has_value()) {
    RETURN_IF_ERROR(AwaitReplica(record_.start_lsn));
    return true;
  }
  // Whatever the consumers' subscriptions may have missed is older than this.
  ASSIGN_OR_RETURN(const std::string lsn, parts_.store.CurrentLsn());
  RETURN_IF_ERROR(AwaitReplica(lsn));
  if (record_.repair) {
    return parts_.store.Begin(record_.id, parts_.token, lsn, std::nullopt, record_.rows_expected);
  }
  std::stop_source lost;
  auto look = std::async(std::launch::async, [&] { return LookAtSource(lost.get_token()); });
  // However long that takes, it is seen that somebody is at it; and an operator's word counts.
  for (bool through = false; !through;) {
    through = look.wait_for(parts_.lease / 3) == std::future_status::ready;
    const auto ours = parts_.store.Renew(record_.id, parts_.token, parts_.lease);
    if (ours.ok() && *ours) continue;
    lost.request_stop();
    look.wait();
    return ours;
  }
  const auto estimate = look.get();
  if (postgres::SqlState(estimate.status()) == "57014" && !parts_.stop.stop_requested()) {
    return InvalidArgument(
        "what is looked for before the first page of {} (NULL in the key, two rows of one "
        "aggregate, the highest key) was cancelled, or took longer than {}: are there indexes on "
        "({}) and on {}? ({})",
        declaration_.SourceName(), FormatDuration(kBeginTimeout), fmt::join(declaration_.key, ", "),
        declaration_.aggregate_id, MessageOf(estimate.status()));
  }
  RETURN_IF_ERROR(estimate.status());
  log::Info("a backfill begins", {{"backfill", record_.name},
                                  {"table", record_.outbox},
                                  {"id", record_.id},
                                  {"rows", *estimate}});
  return parts_.store.Begin(record_.id, parts_.token, lsn, highest_,
                            record_.rows_expected > 0 ? record_.rows_expected : *estimate);
}

absl::StatusOr<BackfillRun::End> BackfillRun::Run() {
  RETURN_IF_ERROR(Open());
  const postgres::CancelOnStop cancel(parts_.stop, parts_.database, source_->backend_pid());
  ASSIGN_OR_RETURN(const bool begun, Begin());
  if (!begun) return End::kLost;
  const SteadyTime turn_ends = Clock::System().Steady() + parts_.turn;
  std::optional<KeyTexts> after = record_.cursor;
  bool more = record_.repair || highest_.has_value();
  while (more) {
    auto found = Next(after);
    // What the bus has taken is saved, whatever became of the next page.
    ASSIGN_OR_RETURN(const auto end, FinishSent());
    if (end.has_value()) return *end;
    if (!found.ok()) return found.status();
    if (!found->has_value()) return End::kLost;
    Page& page = **found;
    more = !page.last;
    if (page.rows > 0) {
      after = page.cursor;
      const auto wait = std::chrono::duration_cast<Millis>(not_before_ - Clock::System().Steady());
      if (wait > Millis(0) && SleepUnlessStopped(parts_.stop, wait)) return End::kStopped;
      Send(std::move(page));
    }
    if (parts_.stop.stop_requested()) break;
    if (more && Clock::System().Steady() > turn_ends) break;
  }
  ASSIGN_OR_RETURN(const auto end, FinishSent());
  if (end.has_value()) return *end;
  if (!more) return End::kDone;
  return parts_.stop.stop_requested() ? End::kStopped : End::kTurnOver;
}

absl::StatusOr<std::optional<BackfillRun::Page>> BackfillRun::Next(
    const std::optional<KeyTexts>& after) {
  while (true) {
    const int asked = size_.rows();
    const SteadyTime began = Clock::System().Steady();
    auto page = record_.repair ? NextRepairs(after) : NextRows(after);
    const std::string state = postgres::SqlState(page.status());
    // A replica cancels what is in the way of its replay (40001); a shorter page is less so.
    const bool conflict = state == "40001" && asked > 1;
    if ((state == "57014" || conflict) && !parts_.stop.stop_requested()) {
      if (asked == 1) {
        return InvalidArgument(
            "the reading of one row of {} was cancelled after {}: is there an index on ({})? ({})",
            declaration_.SourceName(), FormatDuration(PageTimeout(declaration_.chunk)),
            fmt::join(declaration_.key, ", "), MessageOf(page.status()));
      }
      size_.Halve();
      ASSIGN_OR_RETURN(const bool ours, parts_.store.Renew(record_.id, parts_.token, parts_.lease));
      if (!ours) return std::nullopt;
      continue;
    }
    RETURN_IF_ERROR(page.status());
    size_.Took(static_cast<int>(page->rows),
               std::chrono::duration_cast<Millis>(Clock::System().Steady() - began));
    return *std::move(page);
  }
}

absl::StatusOr<BackfillRun::Page> BackfillRun::NextRows(const std::optional<KeyTexts>& after) {
  ASSIGN_OR_RETURN(const SourcePage read, query_->Read(*source_, after, *highest_, size_.rows()));
  Page page;
  page.last = read.last;
  page.messages.reserve(read.rows.size());
  const std::string read_at = FormatTimestamp(read.read_at);
  for (const SourceRow& row : read.rows) {
    auto message = messages_->Of(row, read_at);
    if (!message.ok()) {
      // What stands before it can go; then it is the first, and stops the backfill.
      if (page.rows == 0) return message.status();
      page.last = false;
      break;
    }
    page.messages.push_back(*std::move(message));
    page.cursor = row.key;
    ++page.rows;
  }
  return page;
}

absl::StatusOr<BackfillRun::Page> BackfillRun::NextRepairs(const std::optional<KeyTexts>& after) {
  int64_t last = 0;
  if (after.has_value()) ParseWhole((*after)[0], &last);
  ASSIGN_OR_RETURN(const std::vector<RepairItem> items,
                   parts_.store.RepairItems(record_.id, last, size_.rows()));
  std::vector<KeyTexts> keys;
  for (const RepairItem& item : items) {
    if (!item.key.empty()) keys.push_back(item.key);
  }
  ASSIGN_OR_RETURN(const SourcePage read, query_->ReadKeys(*source_, keys));
  std::map<int64_t, const SourceRow*> found;  // by the place of its key
  for (const SourceRow& row : read.rows) found[row.n] = &row;
  Page page;
  page.last = items.empty();
  size_t place = 0;
  const std::string read_at = FormatTimestamp(read.read_at);
  const std::string now = FormatTimestamp(Clock::System().Now());
  for (const RepairItem& item : items) {
    auto row = found.end();
    if (!item.key.empty()) {
      if (++place > read.keys) break;  // wide rows: the next page
      row = found.find(static_cast<int64_t>(place));
    }
    ++page.rows;
    page.cursor = {fmt::format("{}", item.n)};
    if (row != found.end()) {
      ASSIGN_OR_RETURN(pubsub::Message message, messages_->Of(*row->second, read_at));
      page.messages.push_back(std::move(message));
    } else if (item.ghost.has_value()) {
      ASSIGN_OR_RETURN(pubsub::Message message, messages_->Of(*item.ghost, now));
      page.messages.push_back(std::move(message));
    }  // else it was deleted meanwhile, which the tail tells
  }
  return page;
}

void BackfillRun::Send(Page page) {
  const auto answers = std::make_shared<Answers>();
  sent_ = Sent{answers, std::move(page.cursor), page.rows, {}};
  const size_t first = page.messages.size() - std::min(page.messages.size(), kLastEvents);
  for (size_t i = first; i < page.messages.size(); ++i) {
    sent_->last.push_back(page.messages[i].attributes.at("event_id"));
  }
  if (declaration_.rows_per_second > 0) {
    not_before_ = Clock::System().Steady() +
                  std::chrono::microseconds(page.rows * 1'000'000 / declaration_.rows_per_second);
  }
  if (page.messages.empty()) {
    answers->there = true;
    return;
  }
  parts_.publisher.Publish(parts_.topic, std::move(page.messages),
                           [answers](const std::vector<absl::StatusOr<MessageId>>& results) {
                             {
                               const std::scoped_lock lock(answers->mu);
                               for (const auto& result : results) {
                                 // Behind another of its key: that one's fault says more.
                                 if (result.ok() || FaultOf(result.status()) == Fault::kKnown)
                                   continue;
                                 const bool worse =
                                     answers->first_fault.ok() ||
                                     FaultOf(answers->first_fault) == Fault::kBehind ||
                                     FaultOf(result.status()) == Fault::kRefused;
                                 if (worse) answers->first_fault = result.status();
                               }
                               answers->there = true;
                             }
                             answers->changed.notify_all();
                           });
}

absl::StatusOr<std::optional<BackfillRun::End>> BackfillRun::FinishSent() {
  if (!sent_.has_value()) return std::nullopt;
  const Sent sent = *std::exchange(sent_, std::nullopt);
  absl::Status fault;
  while (true) {
    std::unique_lock lock(sent.answers->mu);
    if (sent.answers->changed.wait_for(lock, parts_.stop, parts_.lease / 3,
                                       [&] { return sent.answers->there; })) {
      fault = sent.answers->first_fault;
      break;
    }
    lock.unlock();
    if (parts_.stop.stop_requested()) return End::kStopped;
    ASSIGN_OR_RETURN(const bool ours, parts_.store.Renew(record_.id, parts_.token, parts_.lease));
    if (!ours) return End::kLost;
  }
  if (!fault.ok()) {
    if (FaultOf(fault) == Fault::kCancelled) return End::kStopped;
    const std::string words = Truncate(MessageOf(fault), 500);
    if (FaultOf(fault) == Fault::kRefused) {
      return InvalidArgument("Pub/Sub refuses a message of {}: {}", declaration_.topic, words);
    }
    return Unavailable("{} did not take the messages: {}", declaration_.topic, words);
  }
  ASSIGN_OR_RETURN(const bool ours, parts_.store.Advance(record_.id, parts_.token, sent.cursor,
                                                         sent.rows, parts_.lease, sent.last));
  if (!ours) return End::kLost;
  parts_.rows.Increment(static_cast<double>(sent.rows));
  return std::nullopt;
}

}  // namespace lockstep::publisher
