#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "envelope/event.h"
#include "postgres/connection.h"
#include "projections/declare/group_file.h"
#include "projections/model/projector.h"
#include "tests/support/test_database.h"

// What the tests of this folder share.
namespace lockstep::projections {

// A file in the test's temporary folder, removed with the object.
class TempFile {
 public:
  TempFile(const std::string& name, const std::string& text);
  ~TempFile();
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// An event of the aggregate ("video", id) with a fresh event id.
Event MakeEvent(const std::string& type, const std::string& aggregate, int64_t version,
                const std::string& payload, const std::string& content_type = "application/json");

// The descriptor set of a .proto text (proto3; well-known types may be imported), as a file.
std::unique_ptr<TempFile> DescriptorsOf(const std::string& proto_text);

// The state schema's migrations, in the schema lockstep_state.
absl::Status MigrateState(postgres::Connection& connection);

// Maps and applies in one transaction of their own.
absl::StatusOr<std::vector<Outcome>> ApplyTo(const Projector& projector,
                                             postgres::Connection& connection,
                                             const std::vector<Event>& events,
                                             const ApplyOptions& options = {});

// Rows as text, columns joined with '|', NULL as ~.
std::vector<std::string> RowsOf(testing::TestDatabase& db, const std::string& sql);

// A database with a group's projector over it.
class TestGroup {
 public:
  // `yaml`: the group file's text, `%DESCRIPTORS%` replaced by the descriptor file's path.
  explicit TestGroup(const std::string& yaml, const std::string& descriptors = "",
                     LoadOptions options = DefaultOptions());
  static LoadOptions DefaultOptions();

  testing::TestDatabase& db() { return db_; }
  const Projector& projector() const { return *group_.projector; }
  const GroupDeclaration& group() const { return group_; }

  // Maps and applies in one transaction of their own; a failure of the database is answered.
  absl::StatusOr<std::vector<Outcome>> TryApply(const std::vector<Event>& events,
                                                const ApplyOptions& options = {});
  // The same, failing the test.
  std::vector<Outcome> Apply(const std::vector<Event>& events, const ApplyOptions& options = {});
  // Rows as text, columns joined with '|', NULL as ~.
  std::vector<std::string> Rows(const std::string& sql);
  absl::Status Check();

 private:
  testing::TestDatabase db_;
  std::unique_ptr<postgres::Connection> connection_;
  GroupDeclaration group_;
};

// Loads a group from text; for tests of what is refused.
absl::StatusOr<GroupDeclaration> LoadText(const std::string& yaml,
                                          const std::string& descriptors = "",
                                          const LoadOptions& options = {});

}  // namespace lockstep::projections
