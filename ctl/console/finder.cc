#include "ctl/console/finder.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "platform/config/database_address.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/sql_error.h"
#include "publisher/outbox/presence.h"
#include "state/groups/overview.h"
#include "state/schema.h"

namespace lockstep::ctl {
namespace {

constexpr Millis kTimeout{3'000};
constexpr int kMost = 1'000;

// Most databases have outboxes or a consumer's state, not both.
bool IsNotThere(const absl::Status& status) {
  const std::string code = postgres::SqlState(status);
  return code == "42P01" || code == "3F000";
}

}  // namespace

absl::StatusOr<std::vector<web::Instance>> ConsoleFinder::LookInto(const Context& context,
                                                                   const std::string& shown) const {
  ASSIGN_OR_RETURN(const auto connection, context.Connect(kTimeout));
  RETURN_IF_ERROR(connection->Run("SET default_transaction_read_only = on"));
  std::vector<web::Instance> instances;
  bool known = false;
  const auto publishers = publisher::ListPublishers(*connection);
  if (publishers.ok()) {
    known = true;
    for (const auto& row : *publishers) {
      instances.push_back(
          {.address = row["address"],
           .role = "publisher",
           .name = row["instance"],
           .found_in = shown,
           .seen_at = ParseTimestamp(row["seen_at"].get<std::string>()).value_or(WallTime())});
    }
  } else if (!IsNotThere(publishers.status())) {
    return publishers.status();
  }
  for (const std::string& schema : options_.schemas) {
    const auto rows = state::Overview(state::Schema(schema)).Instances(*connection, "", kMost);
    if (IsNotThere(rows.status())) continue;
    RETURN_IF_ERROR(rows.status());
    known = true;
    for (const postgres::Row row : *rows) {
      instances.push_back({.address = row.String("address"),  // a row for each of its groups
                           .role = "runner",
                           .name = row.String("instance"),
                           .found_in = shown,
                           .seen_at = row.Time("seen_at")});
    }
  }
  if (!known) {
    return NotFound(
        "it has neither an outbox nor a state schema {}: name the consumer's with "
        "--schema",
        fmt::join(options_.schemas, ", "));
  }
  // Whoever began anew at an address may have left its old row behind.
  std::ranges::stable_sort(instances, std::greater(), &web::Instance::seen_at);
  std::vector<web::Instance> kept;
  for (web::Instance& one : instances) {
    const auto same = [&](const web::Instance& other) { return other.address == one.address; };
    if (!one.address.empty() && std::ranges::none_of(kept, same)) kept.push_back(std::move(one));
  }
  return kept;
}

std::vector<web::Instance> ConsoleFinder::Round() {
  std::vector<Found> found;
  {
    const std::scoped_lock lock(mu_);
    found = found_;
  }
  found.resize(options_.databases.size());
  std::vector<web::Instance> all = options_.named;
  for (size_t i = 0; i < options_.databases.size(); ++i) {
    const Context& context = options_.databases[i];
    const auto address = context.Database();
    found[i].address = address.ok() ? WithoutPassword(*address) : "";
    auto instances = LookInto(context, found[i].address);
    found[i].error = instances.ok() ? "" : std::string(MessageOf(instances.status()));
    if (instances.ok()) found[i].instances = *std::move(instances);
    for (const web::Instance& instance : found[i].instances) {
      const bool named = std::ranges::any_of(options_.named, [&](const web::Instance& other) {
        return other.address == instance.address;
      });
      if (!named) all.push_back(instance);
    }
  }
  const std::scoped_lock lock(mu_);
  found_ = std::move(found);
  return all;
}

Json ConsoleFinder::Databases() const {
  const std::scoped_lock lock(mu_);
  return ListOf(found_, [](const Found& one) {
    return Json{{"address", one.address}, {"found", one.instances.size()}, {"error", one.error}};
  });
}

}  // namespace lockstep::ctl
