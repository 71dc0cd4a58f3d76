#pragma once

// For services that use libpqxx themselves. Header-only, so that it is compiled with the service's
// own libpqxx (6.4 or later); errors are libpqxx's exceptions, as everywhere in the transaction.
#include <pqxx/pqxx>
#include <string>
#include <vector>

#include "publisher/outbox/enqueue.h"

namespace lockstep::publisher {

// As Enqueue in enqueue.h, in the caller's own transaction.
inline int64_t Enqueue(pqxx::transaction_base& transaction, const std::string& outbox,
                       const NewEvent& event) {
  const std::vector<std::optional<std::string>> values = EnqueueParameters(outbox, event);
#if PQXX_VERSION_MAJOR >= 7
  pqxx::params parameters;
  for (const auto& value : values) parameters.append(value);
#if PQXX_VERSION_MAJOR > 7 || PQXX_VERSION_MINOR >= 9
  const pqxx::result result = transaction.exec(pqxx::zview(kEnqueueSql), parameters);
#else
  const pqxx::result result = transaction.exec_params(pqxx::zview(kEnqueueSql), parameters);
#endif
#else
  std::vector<const char*> parameters;
  for (const auto& value : values) parameters.push_back(value ? value->c_str() : nullptr);
  const pqxx::result result =
      transaction.exec_params(kEnqueueSql, pqxx::prepare::make_dynamic_params(parameters));
#endif
  return result[0][0].as<int64_t>();
}

}  // namespace lockstep::publisher
