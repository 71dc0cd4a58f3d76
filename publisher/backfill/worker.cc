#include "publisher/backfill/worker.h"

#include <utility>

#include "platform/log/fault.h"
#include "platform/log/log.h"
#include "platform/log/masking.h"
#include "platform/status.h"
#include "platform/text.h"
#include "publisher/backfill/backfill_run.h"
#include "publisher/outbox/lease_token.h"

namespace lockstep::publisher {
namespace {

constexpr size_t kErrorBytes = 2'000;

}  // namespace

prometheus::Counter& BackfillRows(MetricsRegistry& metrics, const std::string& table) {
  return CounterOf(metrics, "backfill_rows_total",
                   "rows of backfills that Pub/Sub has taken as snapshots", {{"table", table}});
}

BackfillWorker::BackfillWorker(Options options, pubsub::Publisher& publisher, Topics topics,
                               MetricsRegistry& metrics)
    : options_(std::move(options)),
      publisher_(publisher),
      topics_(std::move(topics)),
      metrics_(metrics),
      token_(NewLeaseToken()) {}

void BackfillWorker::Work() {
  Backoff backoff(options_.retry);
  while (!thread_.stopping()) {
    const auto worked = Turn();
    if (worked.ok()) {
      backoff.Reset();
      if (!*worked) SleepUnlessStopped(thread_.stop_token(), options_.look);
      continue;
    }
    log::Fault("backfills can't be looked at; it is tried again", {{"error", worked.status()}});
    SleepUnlessStopped(thread_.stop_token(), backoff.Next());
  }
}

absl::StatusOr<bool> BackfillWorker::Turn() {
  if (session_ == nullptr || session_->broken()) {
    ASSIGN_OR_RETURN(
        session_, postgres::Connection::Open({.url = options_.database,
                                              .application_name = "lockstep-publisher backfills"}));
  }
  BackfillStore store(*session_);
  ASSIGN_OR_RETURN(const auto record,
                   store.Claim(options_.outboxes, token_, options_.instance, options_.lease));
  if (!record.has_value()) return false;
  RETURN_IF_ERROR(Run(store, *record));
  return true;
}

absl::Status BackfillWorker::Run(BackfillStore& store, const BackfillRecord& record) {
  const auto declaration = Declaration::FromJson(record.declaration, record.descriptors);
  if (!declaration.ok()) return Note(store, record, declaration.status());
  const std::string topic = topics_(declaration->topic);
  if (topic.empty()) {
    return Note(store, record,
                InvalidArgument("topic {} is not in the publisher's table `topics`, or is none "
                                "that its topic_style allows",
                                declaration->topic));
  }
  // A repair reads what is so now.
  const bool replica = !options_.replica.empty() && !record.repair;
  BackfillRun run({.store = store,
                   .publisher = publisher_,
                   .database = replica ? options_.replica : options_.database,
                   .replica = replica,
                   .topic = topic,
                   .token = token_,
                   .lease = options_.lease,
                   .turn = options_.turn,
                   .rows = BackfillRows(metrics_, record.outbox),
                   .stop = thread_.stop_token()},
                  record, *declaration);
  const auto end = run.Run();
  if (!end.ok() && thread_.stopping() && BackfillRun::MayPass(end.status())) {
    return store.Release(record.id, token_);  // a statement that the stop has cancelled
  }
  if (!end.ok()) return Note(store, record, end.status());
  switch (*end) {
    case BackfillRun::End::kDone: {
      ASSIGN_OR_RETURN(const bool ours, store.Finish(record.id, token_, options_.instance));
      if (!ours) return absl::OkStatus();
      log::Info("a backfill is done",
                {{"backfill", record.name}, {"table", record.outbox}, {"id", record.id}});
      return absl::OkStatus();
    }
    case BackfillRun::End::kTurnOver:
    case BackfillRun::End::kStopped:
      return store.Release(record.id, token_);
    case BackfillRun::End::kLost:
      log::Info("a backfill was stopped, or is another publisher's by now",
                {{"backfill", record.name}, {"table", record.outbox}, {"id", record.id}});
      break;
  }
  return absl::OkStatus();
}

absl::Status BackfillWorker::Note(BackfillStore& store, const BackfillRecord& record,
                                  const absl::Status& fault) {
  const std::string words = Truncate(MessageOf(fault), kErrorBytes);
  if (BackfillRun::MayPass(fault)) {
    const Millis delay = options_.retry.Delay(record.failures + 1, 0);
    log::Fault(
        "a backfill waits; it is tried again",
        {{"backfill", record.name}, {"table", record.outbox}, {"id", record.id}, {"error", words}});
    return store.Retry(record.id, token_, words, delay).status();
  }
  log::Error("a backfill has failed; mend it, then lockstepctl backfill resume",
             {{"backfill", record.name},
              {"table", record.outbox},
              {"id", record.id},
              {"error", UnlessMasked(words)}});
  return store.Fail(record.id, token_, words, options_.instance).status();
}

}  // namespace lockstep::publisher
