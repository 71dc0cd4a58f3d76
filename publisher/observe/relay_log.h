#pragma once

#include <string>

#include "platform/log/log.h"
#include "publisher/relay/relay_events.h"

namespace lockstep::publisher {

// The relay's log lines: `table topic event_id tenant_id sequence attempts trace_id` (a tenant and
// a trace where there is one), and never a payload.
class RelayLog : public RelayEvents {
 public:
  RelayLog(std::string table, bool mask_tenant)
      : table_(std::move(table)), mask_tenant_(mask_tenant) {}

  void OnPublished(const OutboxRow& row, Millis dispatch) override;
  void OnRetry(const OutboxRow& row, std::string_view code, Millis delay,
               const std::string& error) override;
  void OnDead(const OutboxRow& row, std::string_view code, const std::string& error) override;
  void OnDedupHit(const OutboxRow& row, Millis dispatch) override;
  void OnOutage(const OutboxRow& row, std::string_view code, const absl::Status& why,
                Millis pause) override;
  void OnLostLease(const OutboxRow& row, const std::string& state) override;
  void OnDatabaseError(const absl::Status& error) override;
  void OnShards(const std::vector<int>& held, int of) override;

 private:
  std::string Tenant(const OutboxRow& row) const;
  // What stands in every line of a row, and what else this one says.
  void Write(log::Level level, std::string_view message, std::string_view code,
             const OutboxRow& row, int attempts, log::Fields more) const;

  const std::string table_;
  const bool mask_tenant_;
};

}  // namespace lockstep::publisher
