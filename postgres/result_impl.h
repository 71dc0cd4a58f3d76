#pragma once

#include <pqxx/result>

#include "postgres/result.h"

// What a Result holds; for this folder's own sources only.
namespace lockstep::postgres {

struct Result::Impl {
  pqxx::result result;
};

}  // namespace lockstep::postgres
