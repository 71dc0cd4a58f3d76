#include "idempotency/keys.h"

#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"

namespace lockstep::idempotency {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kColumns[] = R"sql(
SELECT tenant, key, state, hash, attempts, error, octet_length(digest) AS digest_bytes, digest,
       lease_until, lease_until <= clock_timestamp() AS lapsed,
       expires_at, expires_at <= clock_timestamp() AS expired, created_at, updated_at
FROM lockstep.idempotency_keys)sql";
constexpr char kList[] = R"sql({columns}
WHERE ($1::text IS NULL OR tenant = $1) AND starts_with(key, $2) AND ($3 = '' OR state = $3)
ORDER BY updated_at DESC, key LIMIT $4::int)sql";
constexpr char kShow[] = "{columns} WHERE coalesce(tenant, '') = coalesce($1, '') AND key = $2";
constexpr char kHistory[] = R"sql(
SELECT at, actor, role, action, state, note FROM lockstep.idempotency_audit
WHERE coalesce(tenant, '') = coalesce($1, '') AND key = $2 ORDER BY id DESC LIMIT 20)sql";
constexpr char kRelease[] = "SELECT lockstep.idempotency_release($1, $2, $3, nullif($4, ''), $5)";
constexpr char kClean[] = "SELECT lockstep.idempotency_clean($1)";
constexpr char kRights[] = "SELECT lockstep.idempotency_{function}($1::regrole)";

std::string Sql(std::string_view text) {
  return postgres::FillNames(text, {{"columns", kColumns}});
}

// A missing schema, function or table is a database that was never migrated.
absl::Status Explain(const absl::Status& status) {
  const std::string state = postgres::SqlState(status);
  if (state != "3F000" && state != "42883" && state != "42P01") return status;
  return FailedPrecondition(
      "this database has no idempotency keys: run lockstepctl migrate up --set idempotency");
}

Json OrNull(const std::optional<std::string>& text) { return text ? Json(*text) : Json(nullptr); }

Json KeyJson(const postgres::Row& row) {
  return {{"tenant", OrNull(row.OptionalText("tenant"))},
          {"key", row.Text("key")},
          {"state", row.Text("state")},
          {"expired", row.Bool("expired")},
          {"lapsed", row.Bool("lapsed")},
          {"hash", row.Text("hash")},
          {"attempts", row.Int("attempts")},
          {"error", OrNull(row.OptionalText("error"))},
          {"digest_bytes", row.Int("digest_bytes")},
          {"lease_until", OrNull(row.OptionalText("lease_until"))},
          {"expires_at", row.Text("expires_at")},
          {"created_at", row.Text("created_at")},
          {"updated_at", row.Text("updated_at")}};
}

absl::Status NoSuchKey(const std::optional<std::string>& tenant, const std::string& key) {
  if (tenant) return NotFound("tenant '{}' has no idempotency key '{}'", *tenant, key);
  return NotFound("there is no idempotency key '{}' without a tenant; --tenant names one", key);
}

}  // namespace

absl::StatusOr<Json> ListKeys(postgres::Connection& connection, const KeyFilter& filter) {
  const auto rows =
      connection.Execute(Sql(kList), filter.tenant, filter.prefix, filter.state, filter.limit);
  if (!rows.ok()) return Explain(rows.status());
  Json list = Json::array();
  for (const postgres::Row row : *rows) list.push_back(KeyJson(row));
  return list;
}

absl::StatusOr<Json> ShowKey(postgres::Connection& connection,
                             const std::optional<std::string>& tenant, const std::string& key) {
  const auto rows = connection.Execute(Sql(kShow), tenant, key);
  if (!rows.ok()) return Explain(rows.status());
  if (rows->empty()) return NoSuchKey(tenant, key);
  Json json = KeyJson((*rows)[0]);
  json["digest"] = OrNull((*rows)[0].OptionalText("digest"));
  ASSIGN_OR_RETURN(const postgres::Result history, connection.Execute(kHistory, tenant, key));
  json["audit"] = Json::array();
  for (const postgres::Row row : history) {
    json["audit"].push_back({{"at", row.Text("at")},
                             {"actor", row.Text("actor")},
                             {"role", row.Text("role")},
                             {"action", row.Text("action")},
                             {"state", row.Text("state")},
                             {"note", OrNull(row.OptionalText("note"))}});
  }
  return json;
}

absl::StatusOr<std::string> ReleaseKey(postgres::Connection& connection, const Release& release) {
  const auto freed = connection.Execute(kRelease, release.tenant, release.key, release.actor,
                                        release.note, release.force);
  if (!freed.ok()) return Explain(freed.status());
  if (freed->IsNull(0, 0)) return NoSuchKey(release.tenant, release.key);
  return std::string(freed->Text(0, 0));
}

absl::StatusOr<int64_t> CleanKeys(postgres::Connection& connection, int at_most) {
  int64_t gone = 0;
  while (true) {
    const auto batch = connection.Number(kClean, at_most);
    if (!batch.ok()) return Explain(batch.status());
    gone += *batch;
    if (*batch < at_most) return gone;
  }
}

absl::Status ChangeRights(postgres::Connection& connection, const std::string& function,
                          const std::string& role) {
  return connection.Run(postgres::FillNames(kRights, {{"function", function}}),
                        postgres::QuoteIdentifier(role));
}

}  // namespace lockstep::idempotency
