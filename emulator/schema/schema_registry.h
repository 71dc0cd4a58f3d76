#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "emulator/schema/proto_schema.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "google/pubsub/v1/schema.pb.h"
#include "platform/clock.h"

namespace lockstep::emulator {

namespace pb = google::pubsub::v1;

// What a topic names as its schema after that was deleted.
inline constexpr char kDeletedSchema[] = "_deleted-schema_";

// The schemas of the process with their revisions. Protobuf only: Avro answers UNIMPLEMENTED. A
// name may carry a revision: `projects/p/schemas/s@0123abcd`. Any thread may call it.
class SchemaRegistry {
 public:
  explicit SchemaRegistry(const Clock& clock);

  // `keep` is called with what a change leads to, under the lock, before the change is made: all
  // revisions, the oldest first; none = the schema is deleted. A change that is not kept is not
  // made.
  using Keep = std::function<absl::Status(const std::string& name, const std::vector<pb::Schema>&)>;
  void KeepWith(Keep keep) { keep_ = std::move(keep); }
  // Before anybody calls it: revisions that were kept, each schema's oldest first.
  absl::Status Restore(const std::vector<pb::Schema>& revisions);

  absl::StatusOr<pb::Schema> Create(const pb::CreateSchemaRequest& request);
  absl::StatusOr<pb::Schema> Get(const pb::GetSchemaRequest& request);
  absl::StatusOr<pb::ListSchemasResponse> List(const pb::ListSchemasRequest& request);
  absl::StatusOr<pb::ListSchemaRevisionsResponse> ListRevisions(
      const pb::ListSchemaRevisionsRequest& request);
  absl::StatusOr<pb::Schema> Commit(const pb::CommitSchemaRequest& request);
  // Makes an old revision the newest, under a new id.
  absl::StatusOr<pb::Schema> Rollback(const pb::RollbackSchemaRequest& request);
  absl::StatusOr<pb::Schema> DeleteRevision(const pb::DeleteSchemaRevisionRequest& request);
  absl::Status Delete(const std::string& name);
  absl::Status ValidateSchema(const pb::ValidateSchemaRequest& request);
  absl::Status ValidateMessage(const pb::ValidateMessageRequest& request);

  // What a topic asks for: the schema and its revisions must exist.
  absl::Status CheckSettings(const pb::SchemaSettings& settings);
  // Of each message the newest revision that it fits, of those that the topic allows; one that
  // fits none is refused.
  absl::StatusOr<std::vector<std::string>> FindRevisions(const pb::SchemaSettings& settings,
                                                         const pb::PublishRequest& request);

 private:
  struct Revision {
    pb::Schema schema;
    std::shared_ptr<const ProtoSchema> compiled;
  };
  // Oldest first, never empty. Shared: a publish has a copy of the list, not of the definitions.
  using Revisions = std::vector<std::shared_ptr<const Revision>>;

  // The revision with this id, or the end.
  static Revisions::const_iterator FindIn(const Revisions& revisions, const std::string& id);
  // With the lock held.
  absl::StatusOr<Revisions*> FindLocked(const std::string& name);
  absl::StatusOr<Revisions> Find(const std::string& name);
  // The part before '@', and the revision (the newest without one).
  absl::StatusOr<std::shared_ptr<const Revision>> FindRevision(const std::string& name);
  absl::StatusOr<pb::Schema> Add(const std::string& name, pb::Schema schema);
  // With the lock held.
  absl::Status KeepAll(const std::string& name, const Revisions& revisions) const;
  // With the lock held: gives the schema an id and a time, and returns it.
  absl::StatusOr<pb::Schema> Append(pb::Schema schema, std::shared_ptr<const ProtoSchema> compiled,
                                    Revisions* revisions);

  const Clock& clock_;
  std::mutex mu_;
  std::map<std::string, Revisions> schemas_;
  uint64_t revisions_made_ = 0;
  Keep keep_;
};

}  // namespace lockstep::emulator
