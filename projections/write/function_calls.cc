#include "projections/write/function_calls.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/sql_error.h"
#include "projections/plan/function_check.h"
#include "projections/write/table_writer.h"

namespace lockstep::projections {
namespace {

// Functions are planned as the server plans: postgres::kPlannedOnce is for statements of ours. Both
// travel with another statement.
constexpr postgres::Statement kServersPlans{
    "call_servers_plans",
    "SELECT set_config(name, NULL, true) FROM unnest(ARRAY['plan_cache_mode', 'enable_seqscan', "
    "'jit', 'enable_material', 'enable_hashjoin', 'enable_mergejoin']) AS name"};
constexpr postgres::Statement kOurPlans{
    "call_our_plans",
    "SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config(name, 'off', "
    "true) FROM unnest(ARRAY['enable_seqscan', 'jit', 'enable_material', 'enable_hashjoin', "
    "'enable_mergejoin']) AS name"};

// JSON travels once, as text: its bytes are those of the payload.
constexpr std::string_view kEvents = R"(
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::int[],
              $8::timestamptz[], $9::timestamptz[], $10::text[], $11::bytea[], $12::text[],
              $13::text[], $14::text[], $15::bool[]) WITH ORDINALITY
       AS e (event_id, event_type, tenant_id, aggregate_type, aggregate_id, version, schema_version,
             occurred_at, publish_time, content_type, payload, data, attributes, kind, replay, n))";

constexpr std::string_view kAsArray = R"(
SELECT {function}(array_agg(ROW(event_id, event_type, tenant_id, aggregate_type, aggregate_id,
         version, schema_version, occurred_at, publish_time, content_type,
         coalesce(payload, convert_to(data, 'UTF8')), data::jsonb, attributes::jsonb, kind,
         replay)::{state}.event ORDER BY n)))";

constexpr std::string_view kAsJson = R"(
SELECT {function}(jsonb_agg(jsonb_build_object('event_id', event_id, 'event_type', event_type,
         'tenant_id', tenant_id, 'aggregate_type', aggregate_type, 'aggregate_id', aggregate_id,
         'version', version, 'schema_version', schema_version, 'occurred_at', occurred_at,
         'publish_time', publish_time, 'content_type', content_type,
         'payload', CASE WHEN data IS NULL THEN encode(payload, 'base64') END,
         'data', data::jsonb, 'attributes', attributes::jsonb, 'kind', kind,
         'replay', replay) ORDER BY n)))";

// Attributes that are fields of the type `event`: to parse them once more is half of what a call
// costs.
constexpr std::string_view kFields[] = {"event_id",     "event_type",   "tenant_id",
                                        "aggregate_id", "version",      "aggregate_type",
                                        "occurred_at",  "content_type", "schema_version"};

void AppendQuoted(std::string_view text, std::string* json) {
  json->push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') json->push_back('\\');
    if (static_cast<unsigned char>(c) < 0x20) {
      *json += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      json->push_back(c);
    }
  }
  json->push_back('"');
}

std::string OtherAttributes(const Event& event) {
  std::string json = "{";
  for (const auto& [name, value] : event.attributes) {
    if (std::ranges::find(kFields, name) != std::end(kFields)) continue;
    if (json.size() > 1) json.push_back(',');
    AppendQuoted(name, &json);
    json.push_back(':');
    AppendQuoted(value, &json);
  }
  return json + "}";
}

// The events of one call, column by column.
class EventColumns {
 public:
  void Add(const envelope::Received& message, const MappedChange& change, bool replay) {
    const Event& event = message.event;
    ids_.AddPlain(event.event_id.value());
    types_.Add(event.event_type);
    tenants_.Add(event.aggregate.tenant_id);
    aggregate_types_.Add(event.aggregate.type);
    aggregate_ids_.Add(event.aggregate.id);
    versions_.Add(event.version);
    schema_versions_.Add(event.schema_version);
    occurred_.Add(event.occurred_at);
    published_.Add(message.publish_time);
    content_types_.Add(event.content_type);
    if (event.content_type.starts_with("application/json")) {
      payloads_.AddNull();
      data_.Add(event.payload);
    } else {
      payloads_.AddBytea(event.payload);
      data_.Add(change.data);
    }
    attributes_.Add(OtherAttributes(event));
    kinds_.Add(event.is_snapshot() ? "snapshot" : "event");
    replays_.Add(replay);
  }

  bool empty() const { return ids_.size() == 0; }
  postgres::Params params() const {
    return postgres::Params(ids_, types_, tenants_, aggregate_types_, aggregate_ids_, versions_,
                            schema_versions_, occurred_, published_, content_types_, payloads_,
                            data_, attributes_, kinds_, replays_);
  }

 private:
  postgres::Array ids_, types_, tenants_, aggregate_types_, aggregate_ids_, versions_,
      schema_versions_, occurred_, published_, content_types_, payloads_, data_, attributes_,
      kinds_, replays_;
};

}  // namespace

FunctionCalls::FunctionCalls(const GroupPlan& plan)
    : plan_(plan), sql_(plan.mappings.calls.size()) {
  for (size_t i = 0; i < sql_.size(); ++i) names_.push_back(fmt::format("call_{}", i));
}

void FunctionCalls::Forget() const {
  std::scoped_lock lock(mu_);
  sql_.assign(sql_.size(), nullptr);
}

absl::StatusOr<std::shared_ptr<const std::string>> FunctionCalls::SqlOf(
    postgres::Transaction& transaction, uint32_t call) const {
  {
    std::scoped_lock lock(mu_);
    if (sql_[call] != nullptr) return sql_[call];
  }
  const Call& target = plan_.mappings.calls[call];
  ASSIGN_OR_RETURN(const EventsAs takes, FindFunction(target, plan_.state_schema, transaction));
  const std::string state = postgres::QuoteIdentifier(plan_.state_schema);
  auto sql = std::make_shared<const std::string>(
      postgres::FillNames(takes == EventsAs::kArray ? kAsArray : kAsJson,
                          {{"function", target.function.Quoted()}, {"state", state}}) +
      std::string(kEvents));
  std::scoped_lock lock(mu_);
  sql_[call] = sql;
  return sql;
}

absl::Status FunctionCalls::Run(postgres::Transaction& transaction,
                                const std::vector<const Change*>& changes,
                                const ApplyOptions& options, std::vector<Outcome>* outcomes) const {
  bool any = false;
  for (uint32_t i = 0; i < plan_.mappings.calls.size(); ++i) {
    const Call& call = plan_.mappings.calls[i];
    if (call.is_http()) continue;
    EventColumns events;
    for (size_t at = 0; at < changes.size(); ++at) {
      const auto& change = static_cast<const MappedChange&>(*changes[at]);
      if (std::ranges::find(change.calls, i) == change.calls.end()) continue;
      const bool replay = Replays(options, at);
      Note(replay && !call.replays ? Outcome::kSuperseded : Outcome::kApplied, &(*outcomes)[at]);
      if (replay && !call.replays) continue;
      events.Add(*options.messages[at], change, replay);
    }
    if (events.empty()) continue;
    ASSIGN_OR_RETURN(const auto sql, SqlOf(transaction, i));
    if (!any) RETURN_IF_ERROR(transaction.Defer(kServersPlans));
    any = true;
    const absl::Status called =
        transaction.Run(postgres::Statement{names_[i], *sql}, events.params());
    if (called.ok()) continue;
    if (postgres::Classify(called) == postgres::ErrorClass::kConfiguration) Forget();
    return called;
  }
  return any ? transaction.Defer(kOurPlans) : absl::OkStatus();
}

}  // namespace lockstep::projections
