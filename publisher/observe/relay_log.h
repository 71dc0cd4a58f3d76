#pragma once

#include <string>
#include <utility>

#include "publisher/relay/relay_events.h"

namespace lockstep::publisher {

// The relay's log lines: `table topic event_id message_id ordering_key tenant_id sequence attempts
// trace_id` (a message, a tenant and a trace where there is one), and never a payload.
class RelayLog : public RelayEvents {
 public:
  explicit RelayLog(std::string table) : table_(std::move(table)) {}

  void OnRow(const RowEvent& event) override;
  void OnDatabaseError(const absl::Status& error) override;
  void OnGone(int64_t rows) override;
  void OnShards(const std::vector<int>& held, int of) override;

 private:
  const std::string table_;
};

}  // namespace lockstep::publisher
