#include "publisher/outbox/enqueue.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "platform/duration.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/params.h"

namespace lockstep::publisher {

std::vector<std::optional<std::string>> EnqueueParameters(const std::string& outbox,
                                                          const NewEvent& event) {
  const auto given = [](const std::string& text) {
    return text.empty() ? std::nullopt : std::optional(text);
  };
  return {outbox,
          event.topic,
          event.aggregate_type,
          event.aggregate_id,
          event.event_type,
          fmt::format("{}", event.version),
          postgres::EncodeBytea(event.payload),
          given(event.event_id),
          event.tenant_id,
          fmt::format("{}", event.schema_version),
          event.content_type,
          nlohmann::json(event.attributes)
              .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
          event.traceparent,
          event.tracestate,
          event.occurred_at.has_value() ? std::optional(FormatTimestamp(*event.occurred_at))
                                        : std::nullopt,
          event.target_space};
}

absl::StatusOr<int64_t> Enqueue(postgres::Transaction& transaction, const std::string& outbox,
                                const NewEvent& event) {
  postgres::Params params;
  for (const auto& value : EnqueueParameters(outbox, event)) params.Add(value);
  return transaction.Number(kEnqueueSql, params);
}

}  // namespace lockstep::publisher
