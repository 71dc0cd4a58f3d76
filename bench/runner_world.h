#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "projections/declare/group_file.h"
#include "pubsub/transport.h"
#include "runner/group/group.h"

namespace lockstep::bench {

// What a stream of events does to the rows.
enum class Stream {
  kCreate,  // nine of ten events make a new row
  kUpdate,  // nine of ten change one of 20,000 rows
  kHotKey,  // half of them change one of ten rows
};
std::string_view Name(Stream stream);

enum class Ids { kRandom, kTimeOrdered };

// The events of one measurement, as messages.
std::vector<pubsub::Message> MakeEvents(Stream stream, Ids ids, int count, int seed);

// A database with the state schema and the read model, made anew.
class RunnerWorld {
 public:
  RunnerWorld(std::string database, std::string schema);
  ~RunnerWorld();
  RunnerWorld(const RunnerWorld&) = delete;
  RunnerWorld& operator=(const RunnerWorld&) = delete;

  // Empties the read model and the state; leaves the inbox with so many rows of other events (those
  // of the last measurement stay among them), its index in Postgres's buffers.
  void Reset(int64_t inbox_rows, Ids ids);

  // Another group's file than the one with the table; empty = that one.
  void Declare(const std::string& group_file);
  void Execute(const std::string& sql);

  const std::string& database() const { return database_; }
  const std::string& schema() const { return schema_; }
  // Groups know events again by their versions from now on (inbox: aggregate), or no longer.
  void ByVersions(bool by_versions) { by_versions_ = by_versions; }
  bool by_versions() const { return by_versions_; }
  // The declaration, read anew: a Group takes its projector.
  projections::GroupDeclaration Declaration() const;
  int64_t Count(const std::string& sql);

 private:
  void FillInbox(int64_t rows, Ids ids);

  const std::string database_;
  const std::string schema_;
  std::string file_;
  bool by_versions_ = false;
  std::pair<int64_t, Ids> filled_{0, Ids::kRandom};
  std::unique_ptr<postgres::Connection> connection_;
};

}  // namespace lockstep::bench
