#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "platform/strong_id.h"
#include "postgres/connection.h"

namespace lockstep::state {

// The schema in which a service keeps its own state (`state_schema`), and the way in which its name
// gets into SQL: texts name their tables as `{state}.inbox`.
class Schema {
 public:
  explicit Schema(std::string name);

  const std::string& name() const { return name_; }

  // The text with every `{state}` replaced by the quoted schema.
  std::string Sql(std::string_view text) const;

  // OK when the schema is there and at this program's version; else a sentence that names the
  // lockstepctl command. Errors of the connection pass through unchanged.
  absl::Status Check(postgres::Connection& connection) const;

 private:
  std::string name_;
  std::string quoted_;
};

// A prepared statement whose text holds the schema. REQUIRES: `name` is a literal.
class Statement {
 public:
  Statement(const Schema& schema, std::string_view name, std::string_view text)
      : name_(name), sql_(schema.Sql(text)) {}

  operator postgres::Statement() const { return {name_, sql_}; }  // NOLINT: that is its purpose

 private:
  std::string_view name_;
  std::string sql_;
};

// A class of the rooms that keeps something of one group, which is $1 of its statements. Safe from
// any thread, with connections of the callers' own.
class GroupStore {
 public:
  GroupStore(const Schema& schema, ConsumerGroup group)
      : schema_(schema), group_(std::move(group)) {}

  const ConsumerGroup& group() const { return group_; }

 protected:
  const Schema schema_;
  const ConsumerGroup group_;
};

}  // namespace lockstep::state
