#pragma once

#include <atomic>
#include <pqxx/result>

#include "postgres/result.h"

// What a Result holds; for this folder's own sources only.
namespace lockstep::postgres {

struct Result::Impl {
  explicit Impl(const pqxx::result& rows) : result(rows) {}

  pqxx::result result;
  mutable std::atomic<int> next_column{0};  // where Result::Column looks first
};

}  // namespace lockstep::postgres
