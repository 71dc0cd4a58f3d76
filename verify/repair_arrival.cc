#include "verify/repair_arrival.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "envelope/event.h"
#include "platform/status.h"
#include "publisher/backfill/snapshot_message.h"

namespace lockstep::verify {
namespace {

constexpr size_t kRowsAtOnce = 1'000;

}  // namespace

absl::StatusOr<std::map<publisher::KeyTexts, publisher::SourceRow>> RepairArrival::Read(
    const std::vector<publisher::KeyTexts>& keys) const {
  std::map<publisher::KeyTexts, publisher::SourceRow> rows;
  for (size_t i = 0; i < keys.size();) {
    const std::vector<publisher::KeyTexts> page(
        keys.begin() + static_cast<std::ptrdiff_t>(i),
        keys.begin() + static_cast<std::ptrdiff_t>(std::min(i + kRowsAtOnce, keys.size())));
    ASSIGN_OR_RETURN(publisher::SourcePage found, query_.ReadKeys(source_, page));
    for (publisher::SourceRow& row : found.rows) {
      row.payload.clear();
      const publisher::KeyTexts& asked = page[static_cast<size_t>(row.n) - 1];
      rows.emplace(asked, std::move(row));
    }
    i += found.keys;
  }
  return rows;
}

absl::StatusOr<RepairArrival> RepairArrival::Expect(const publisher::Declaration& declaration,
                                                    postgres::Connection& source,
                                                    const RepairPlan& plan) {
  ASSIGN_OR_RETURN(auto query, publisher::SourceQuery::Make(source, declaration));
  RepairArrival arrival(declaration, source, std::move(query));
  ASSIGN_OR_RETURN(const auto rows, arrival.Read(plan.keys));
  const auto aggregate = [&](const std::optional<std::string>& tenant, const std::string& id) {
    return envelope::AggregateKey({tenant, declaration.aggregate_type, id});
  };
  for (const auto& [key, row] : rows) {
    arrival.expected_.push_back(
        {.key = key,
         .aggregate_key = aggregate(row.tenant_id, row.aggregate_id.value_or("")),
         .version = row.version.value_or(0)});
  }
  for (const publisher::Ghost& ghost : plan.ghosts) {
    arrival.expected_.push_back({.key = ghost.key,
                                 .aggregate_key = aggregate(ghost.tenant_id, ghost.aggregate_id),
                                 .version = ghost.version,
                                 .ghost = true});
  }
  return arrival;
}

absl::Status RepairArrival::Await(const std::string& repair, Passage& passage,
                                  const std::stop_token& stop) {
  std::map<std::string, const Expected*> by_event;
  std::vector<state::EventFates::Event> events;
  for (const Expected& one : expected_) {
    const std::string id = publisher::SnapshotEventId(repair, one.aggregate_key, one.version);
    by_event[id] = &one;
    events.push_back({.event_id = id,
                      .aggregate_key = one.aggregate_key,
                      .version = one.version,
                      .snapshot = true});
  }
  return passage.AwaitEvents(
      std::move(events),
      [&](std::vector<state::EventFates::Event>* left) -> absl::Status {
        std::vector<publisher::KeyTexts> keys;
        for (const auto& event : *left) {
          if (const Expected& one = *by_event.at(event.event_id); !one.key.empty()) {
            keys.push_back(one.key);
          }
        }
        ASSIGN_OR_RETURN(const auto rows, Read(keys));
        std::erase_if(*left, [&](const state::EventFates::Event& event) {
          const Expected& one = *by_event.at(event.event_id);
          const auto row = rows.find(one.key);
          if (one.ghost) return row != rows.end();  // it came back, and was not said to be gone
          return row == rows.end() || row->second.version != one.version;
        });
        return absl::OkStatus();
      },
      stop);
}

}  // namespace lockstep::verify
