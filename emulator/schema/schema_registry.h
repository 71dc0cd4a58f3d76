#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "emulator/schema/proto_schema.h"
#include "emulator/wire/page.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "google/pubsub/v1/schema.pb.h"
#include "platform/clock.h"

namespace lockstep::emulator {

// What a topic names as its schema after that was deleted.
inline constexpr char kDeletedSchema[] = "_deleted-schema_";

// The schemas of the process with their revisions. Protobuf only: Avro answers UNIMPLEMENTED. A
// name may carry a revision: `projects/p/schemas/s@0123abcd`. Any thread may call it.
class SchemaRegistry {
 public:
  using Schema = google::pubsub::v1::Schema;
  using View = google::pubsub::v1::SchemaView;

  explicit SchemaRegistry(const Clock& clock);

  absl::StatusOr<Schema> Create(const std::string& parent, const std::string& id, Schema schema);
  absl::StatusOr<Schema> Get(const std::string& name, View view) const;
  absl::StatusOr<Page<Schema>> List(const std::string& parent, View view,
                                    const PageRequest& page) const;
  absl::StatusOr<Page<Schema>> ListRevisions(const std::string& name, View view,
                                             const PageRequest& page) const;
  absl::StatusOr<Schema> Commit(const std::string& name, Schema schema);
  // Makes an old revision the newest, under a new id.
  absl::StatusOr<Schema> Rollback(const std::string& name, const std::string& revision_id);
  absl::StatusOr<Schema> DeleteRevision(const std::string& name, const std::string& revision_id);
  absl::Status Delete(const std::string& name);

  static absl::Status ValidateSchema(const Schema& schema);
  absl::Status ValidateMessage(const google::pubsub::v1::ValidateMessageRequest& request) const;

  // What a topic asks for: the schema and its revisions must exist.
  absl::Status CheckSettings(const google::pubsub::v1::SchemaSettings& settings) const;
  // Whether a message fits one of the revisions that the topic allows.
  absl::Status CheckMessages(const google::pubsub::v1::SchemaSettings& settings,
                             const google::pubsub::v1::PublishRequest& request) const;

 private:
  struct Revision {
    Schema schema;
    std::shared_ptr<const ProtoSchema> compiled;
  };
  using Revisions = std::vector<Revision>;  // oldest first, never empty

  absl::StatusOr<Revisions> Find(const std::string& name) const;
  // The part before '@', and the revision (the newest without one).
  absl::StatusOr<Revision> FindRevision(const std::string& name) const;
  Revision MakeRevision(Schema schema, std::shared_ptr<const ProtoSchema> compiled);
  absl::StatusOr<Schema> Add(const std::string& name, Schema schema);

  const Clock& clock_;
  mutable std::mutex mu_;
  std::map<std::string, Revisions> schemas_;
  uint64_t revisions_made_ = 0;
};

}  // namespace lockstep::emulator
