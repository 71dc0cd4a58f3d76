#pragma once

#include <optional>
#include <string>
#include <vector>

#include "idempotency/store.h"

// The calls of the store as SQL with parameters, for whatever client there is.
namespace lockstep::idempotency {

inline constexpr char kCheckAndPutSql[] =
    "SELECT outcome, digest, error, token FROM "
    "lockstep.idempotency_check_and_put($1, $2, $3, $4::interval, $5::interval, $6::boolean)";
inline constexpr char kFinishSql[] = "SELECT lockstep.idempotency_finish($1, $2, $3, $4::uuid)";
inline constexpr char kFailSql[] = "SELECT lockstep.idempotency_fail($1, $2, $3, $4::uuid)";
inline constexpr char kRenewSql[] =
    "SELECT lockstep.idempotency_renew($1, $2, $3::interval, $4::uuid)";
// What they raise when the key is not the caller's any more.
inline constexpr char kLostSqlState[] = "LS002";

using SqlValues = std::vector<std::optional<std::string>>;
SqlValues CheckAndPutValues(const Request& request);
SqlValues FinishValues(const Held& held, const std::optional<std::string>& digest);
SqlValues FailValues(const Held& held, const std::string& error);
SqlValues RenewValues(const Held& held, Millis lease);

// Of the columns of kCheckAndPutSql.
Answer ParseAnswer(const std::string& outcome, std::optional<std::string> digest,
                   std::optional<std::string> error, std::optional<std::string> token);

}  // namespace lockstep::idempotency
