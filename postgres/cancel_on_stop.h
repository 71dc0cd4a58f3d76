#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <utility>

#include "postgres/cancel.h"
#include "postgres/connection.h"

namespace lockstep::postgres {

// As long as it lives, a stop cancels what a session is doing: a scan may take long.
class CancelOnStop {
 public:
  CancelOnStop(const std::stop_token& stop, std::string database, int pid)
      : callback_(stop, [database = std::move(database), pid] {
          const auto other = Connection::Open({.url = database,
                                               .application_name = "lockstep cancel",
                                               .statement_timeout = Millis(5'000)});
          if (other.ok()) CancelStatement(**other, pid);
        }) {}

 private:
  std::stop_callback<std::function<void()>> callback_;
};

}  // namespace lockstep::postgres
