#include "publisher/backfill/backfill_record.h"

#include "platform/duration.h"
#include "postgres/identifier.h"

namespace lockstep::publisher {
namespace {

using nlohmann::ordered_json;

constexpr char kColumns[] = R"sql(
  b.id, lockstep.outbox_name(b.outbox) AS outbox, b.name, b.repair, b.state, b.created_by, b.role, b.reason,
  b.created_at, b.begun_at, b.ended_at, b.progress_at, b.retry_at, b.start_lsn::text AS start_lsn,
  array_to_json(b.highest)::text AS highest, array_to_json(b.cursor)::text AS cursor,
  array_to_json(b.last_events)::text AS last_events, b.rows_done, b.rows_expected,
  b.failures, b.last_error, b.lease_owner, coalesce(b.lease_until > statement_timestamp(), false) AS leased,
  b.declaration::text AS declaration)sql";

ordered_json TimeOf(const std::optional<WallTime>& time) {
  return time ? ordered_json(FormatTimestamp(*time)) : ordered_json(nullptr);
}

ordered_json TextOrNull(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

}  // namespace

ordered_json BackfillRecord::ToJson() const {
  return {{"id", id},
          {"outbox", outbox},
          {"backfill", name},
          {"repair", repair},
          {"state", state},
          {"rows_done", rows_done},
          {"rows_expected", rows_expected},
          {"cursor", cursor ? ordered_json(*cursor) : ordered_json(nullptr)},
          {"highest", highest ? ordered_json(*highest) : ordered_json(nullptr)},
          {"created_at", FormatTimestamp(created_at)},
          {"created_by", created_by},
          {"role", role},
          {"reason", TextOrNull(reason)},
          {"begun_at", TimeOf(begun_at)},
          {"progress_at", TimeOf(progress_at)},
          {"ended_at", TimeOf(ended_at)},
          {"worker", leased ? TextOrNull(lease_owner) : ordered_json(nullptr)},
          {"failures", failures},
          {"retry_at", TimeOf(retry_at)},
          {"last_error", TextOrNull(last_error)}};
}

std::optional<KeyTexts> ReadKey(const std::optional<std::string>& json) {
  if (!json.has_value()) return std::nullopt;
  return ordered_json::parse(*json).get<KeyTexts>();
}

BackfillRecord ReadRecord(const postgres::Row& row) {
  BackfillRecord record;
  record.id = row.String("id");
  record.outbox = row.String("outbox");
  record.name = row.String("name");
  record.repair = row.Bool("repair");
  record.state = row.String("state");
  record.created_by = row.String("created_by");
  record.role = row.String("role");
  record.reason = row.String("reason");
  record.created_at = row.Time("created_at");
  record.begun_at = row.OptionalTime("begun_at");
  record.ended_at = row.OptionalTime("ended_at");
  record.progress_at = row.OptionalTime("progress_at");
  record.retry_at = row.OptionalTime("retry_at");
  record.start_lsn = row.String("start_lsn");
  record.highest = ReadKey(row.OptionalText("highest"));
  record.cursor = ReadKey(row.OptionalText("cursor"));
  record.last_events = ReadKey(row.OptionalText("last_events")).value_or(KeyTexts());
  record.rows_done = row.Int("rows_done");
  record.rows_expected = row.Int("rows_expected");
  record.failures = static_cast<int>(row.Int("failures"));
  record.last_error = row.String("last_error");
  record.lease_owner = row.String("lease_owner");
  record.leased = row.Bool("leased");
  record.declaration = ordered_json::parse(row.Text("declaration"));
  record.descriptors = row.Bytes("descriptors");
  return record;
}

std::string WithRecordColumns(std::string_view sql) {
  return postgres::FillNames(sql, {{"columns", kColumns}});
}

}  // namespace lockstep::publisher
