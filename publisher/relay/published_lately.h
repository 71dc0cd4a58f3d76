#pragma once

#include <deque>
#include <string>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "publisher/outbox/outbox_store.h"

namespace lockstep::publisher {

// The rows that a relay published last, by name. A database that went back (a standby that lagged
// was promoted, a backup was restored) lacks some of them, although their events are on the bus:
// their versions will be given to other events. Owned by the relay's thread.
class PublishedLately {
 public:
  static constexpr size_t kMost = 10'000;

  // `keep` is shorter than rows stay in the outbox.
  explicit PublishedLately(Millis keep) : keep_(keep) {}

  void Note(const OutboxRow& row, SteadyTime now) {
    rows_.push_back({{row.sequence, row.event_id, row.tenant_id, row.aggregate_type,
                      row.aggregate_id, row.version},
                     now});
    Forget(now);
  }

  // Writes those that are gone into the audit and answers how many; they are not told again.
  absl::StatusOr<int64_t> AuditGone(OutboxStore& store, const std::string& owner, SteadyTime now) {
    Forget(now);
    if (rows_.empty()) return 0;
    std::vector<RowName> names;
    for (const Noted& noted : rows_) names.push_back(noted.name);
    auto gone = store.AuditGone(names, owner);
    if (gone.ok() && *gone > 0) rows_.clear();
    return gone;
  }

 private:
  struct Noted {
    RowName name;
    SteadyTime at;
  };

  void Forget(SteadyTime now) {
    while (!rows_.empty() && (rows_.size() > kMost || now - rows_.front().at >= keep_)) {
      rows_.pop_front();
    }
  }

  const Millis keep_;
  std::deque<Noted> rows_;
};

}  // namespace lockstep::publisher
