#pragma once

#include <cstdint>

namespace lockstep::runner {

// What has become of a group's messages since the start.
struct GroupCounts {
  int64_t deliveries = 0;
  // Events by how they ended.
  int64_t applied = 0, superseded = 0, ignored = 0, duplicates = 0, parked = 0, ended_dead = 0;
  int64_t released = 0, gaps = 0;
  int64_t dead = 0;  // dead letters written, of released events too
  int64_t acks = 0, ack_failures = 0, nacks = 0;
  int64_t batches = 0, failures = 0;
  int64_t offsets_saved = 0, offsets_failed = 0;

  // Messages brought to an end.
  int64_t handled() const {
    return applied + superseded + ignored + duplicates + parked + ended_dead;
  }
};

// Where a count is shown: in the API, among the events of runner_events_total, as a metric of its
// own.
struct GroupCounter {
  int64_t GroupCounts::*count;
  const char* field = nullptr;   // of the API
  const char* ending = nullptr;  // the result under which runner_events_total has it
  const char* metric = nullptr;
  const char* help = nullptr;
  const char* result = nullptr;  // that metric's label of this name
};

inline constexpr GroupCounter kGroupCounters[] = {
    {&GroupCounts::deliveries, "deliveries", nullptr, "runner_deliveries_total",
     "Messages received"},
    {&GroupCounts::applied, "applied", "applied"},
    {&GroupCounts::superseded, "superseded", "superseded", "runner_stale_versions_total",
     "Events that a newer version had superseded"},
    {&GroupCounts::ignored, "ignored", "ignored"},
    {&GroupCounts::duplicates, "duplicates", "duplicate", "runner_duplicates_total",
     "Events that the inbox knew"},
    {&GroupCounts::parked, "parked", "parked", "runner_parked_total", "Events that were parked"},
    {&GroupCounts::ended_dead, nullptr, "dead"},
    {&GroupCounts::released, "released", nullptr, "runner_released_total",
     "Parked events that were applied"},
    {&GroupCounts::gaps, "gaps", nullptr, "runner_gaps_total",
     "Events that were parked because a version was missing"},
    {&GroupCounts::dead, "dead", nullptr, "runner_dead_letters_total", "Dead letters written"},
    {&GroupCounts::acks, "acks", nullptr, "runner_acks_total", "Acks by result", "ok"},
    {&GroupCounts::ack_failures, "ack_failures", nullptr, "runner_acks_total", "Acks by result",
     "failed"},
    {&GroupCounts::nacks, "nacks", nullptr, "runner_nacks_total", "Messages given back to the bus"},
    {&GroupCounts::batches, "batches"},
    {&GroupCounts::failures, "failures", nullptr, "runner_transaction_failures_total",
     "Transactions that failed and were retried"},
    {&GroupCounts::offsets_saved, nullptr, nullptr, "offset_save_total", "Offsets saved"},
    {&GroupCounts::offsets_failed, nullptr, nullptr, "offset_save_failure_total",
     "Offsets that could not be saved"},
};

}  // namespace lockstep::runner
