#pragma once

// For services that use libpqxx themselves. Header-only, so that it is compiled with the service's
// own libpqxx (6.4 or later); errors are libpqxx's exceptions, as everywhere in the transaction: a
// key that is not the caller's any more is a pqxx::sql_error with the SQLSTATE LS002.
#include <optional>
#include <pqxx/pqxx>
#include <string>
#include <vector>

#include "idempotency/store_sql.h"

namespace lockstep::idempotency {

inline pqxx::result CallPqxx(pqxx::transaction_base& transaction, const char* sql,
                             const SqlValues& values) {
#if PQXX_VERSION_MAJOR >= 7
  pqxx::params parameters;
  for (const auto& value : values) parameters.append(value);
#if PQXX_VERSION_MAJOR > 7 || PQXX_VERSION_MINOR >= 9
  return transaction.exec(pqxx::zview(sql), parameters);
#else
  return transaction.exec_params(pqxx::zview(sql), parameters);
#endif
#else
  std::vector<const char*> parameters;
  for (const auto& value : values) parameters.push_back(value ? value->c_str() : nullptr);
  return transaction.exec_params(sql, pqxx::prepare::make_dynamic_params(parameters));
#endif
}

// As IdempotencyStore in store.h, in the caller's own transaction.
inline Answer CheckAndPut(pqxx::transaction_base& transaction, const Request& request) {
  const pqxx::result result = CallPqxx(transaction, kCheckAndPutSql, CheckAndPutValues(request));
  const auto text = [&](int column) {
    const auto field = result[0][column];
    return field.is_null() ? std::nullopt : std::optional<std::string>(field.c_str());
  };
  return ParseAnswer(result[0][0].c_str(), text(1), text(2), text(3));
}
inline void Finish(pqxx::transaction_base& transaction, const Held& held,
                   const std::optional<std::string>& digest) {
  CallPqxx(transaction, kFinishSql, FinishValues(held, digest));
}
inline void Fail(pqxx::transaction_base& transaction, const Held& held, const std::string& error) {
  CallPqxx(transaction, kFailSql, FailValues(held, error));
}
inline void Renew(pqxx::transaction_base& transaction, const Held& held, Millis lease) {
  CallPqxx(transaction, kRenewSql, RenewValues(held, lease));
}

}  // namespace lockstep::idempotency
