#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "ctl/command/command.h"
#include "web/console/instance.h"

namespace lockstep::ctl {

// Looks for publishers and runners in databases: they write there by which address others reach
// their pages. Round is one thread's; the rest is safe from any.
class ConsoleFinder {
 public:
  struct Options {
    std::vector<Context> databases;
    std::vector<std::string> schemas;  // of a consumer's state
    std::vector<web::Instance> named;  // on the command line
  };
  explicit ConsoleFinder(Options options) : options_(std::move(options)) {}

  // Those that were named and those that are found now. What a database said last counts while it
  // can't be asked.
  std::vector<web::Instance> Round();

  // Per database: address, found, error.
  Json Databases() const;

 private:
  struct Found {
    std::string address;  // without its password
    std::vector<web::Instance> instances;
    std::string error;
  };
  absl::StatusOr<std::vector<web::Instance>> LookInto(const Context& context,
                                                      const std::string& shown) const;

  const Options options_;
  mutable std::mutex mu_;
  std::vector<Found> found_;
};

}  // namespace lockstep::ctl
