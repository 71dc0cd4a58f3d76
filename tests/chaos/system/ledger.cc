#include "tests/chaos/system/ledger.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::chaos {

std::map<std::string, Row> RowsBefore() {
  std::map<std::string, Row> rows;
  for (int i = 0; i < kRowsBefore; ++i) {
    rows[fmt::format("r{}", i)] = {1 + i % 5, fmt::format("old {}", i), fmt::format("{}", i)};
  }
  return rows;
}

namespace {

bool Dies(const Event& event, bool called) {
  return event.poison != Poison::kNone && (called || event.poison != Poison::kRefusedByConsumer);
}

}  // namespace

Ledger::Ledger(const std::string& file) : file_(file) {}

void Ledger::Commit(std::vector<Event> events) {
  std::scoped_lock lock(mu_);
  for (Event& event : events) {
    file_ << fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\n", event.id, event.key, event.version,
                         event.type, event.bucket, event.amount, static_cast<int>(event.poison));
    events_.push_back(std::move(event));
  }
  file_.flush();
}

int64_t Ledger::size() const {
  std::scoped_lock lock(mu_);
  return static_cast<int64_t>(events_.size());
}

int64_t Ledger::poison(bool called) const {
  std::scoped_lock lock(mu_);
  return std::count_if(events_.begin(), events_.end(),
                       [&](const Event& event) { return Dies(event, called); });
}

std::vector<std::string> Ledger::Ids(size_t from, WallTime before) const {
  std::scoped_lock lock(mu_);
  std::vector<std::string> ids;
  for (size_t i = from; i < events_.size() && events_[i].committed < before; ++i) {
    ids.push_back(events_[i].id);
  }
  return ids;
}

Expected Ledger::Expect(bool ordered, bool called) const {
  std::scoped_lock lock(mu_);
  Expected expected{.rows = RowsBefore()};
  std::set<std::string> blocked;  // keys behind a dead letter
  std::map<std::string, int64_t> places;
  for (const Event& event : events_) {
    expected.seen.insert(event.id);
    const bool refused = event.poison == Poison::kRefusedByConsumer;
    const bool waits = ordered && blocked.contains(event.key);
    if (!waits && (event.poison == Poison::kNone || refused)) {
      expected.due[event.id] = {event.key, event.version, ++places[event.key], refused};
    }
    if (Dies(event, called)) {
      expected.dead.insert(event.id);
      blocked.insert(event.key);
      continue;
    }
    if (waits) {
      expected.parked.insert(event.id);
      continue;
    }
    Total& total = expected.totals[event.bucket];
    ++total.n;
    total.amount += event.amount;
    if (event.gone) {
      expected.rows.erase(event.key);
    } else {
      expected.rows[event.key] = {event.version, event.full_a, event.full_b};
    }
  }
  return expected;
}

}  // namespace lockstep::chaos
