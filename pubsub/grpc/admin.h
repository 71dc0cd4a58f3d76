#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "google/pubsub/v1/schema.grpc.pb.h"
#include "pubsub/admin.h"
#include "pubsub/grpc/channel/channel.h"

namespace lockstep::pubsub::grpc_client {

// The port's Admin: blocking calls on the caller's thread. Those that may be repeated are, for a
// while, when a fault may pass.
class GrpcAdmin : public Admin {
 public:
  explicit GrpcAdmin(std::shared_ptr<Client> client);

  absl::StatusOr<Topic> CreateTopic(const Topic& topic) override;
  absl::StatusOr<Topic> GetTopic(const std::string& name) override;
  absl::StatusOr<Topic> UpdateTopic(const Topic& topic,
                                    const std::vector<std::string>& paths) override;
  absl::StatusOr<std::vector<Topic>> ListTopics(const std::string& project) override;
  absl::Status DeleteTopic(const std::string& name) override;

  absl::StatusOr<Subscription> CreateSubscription(const Subscription& subscription) override;
  absl::StatusOr<Subscription> GetSubscription(const std::string& name) override;
  absl::StatusOr<Subscription> UpdateSubscription(const Subscription& subscription,
                                                  const std::vector<std::string>& paths) override;
  absl::StatusOr<std::vector<Subscription>> ListSubscriptions(const std::string& project) override;
  absl::Status DeleteSubscription(const std::string& name) override;
  absl::Status DetachSubscription(const std::string& name) override;

  absl::StatusOr<Snapshot> CreateSnapshot(
      const std::string& name, const std::string& subscription,
      const std::map<std::string, std::string>& labels) override;
  absl::StatusOr<Snapshot> GetSnapshot(const std::string& name) override;
  absl::StatusOr<std::vector<Snapshot>> ListSnapshots(const std::string& project) override;
  absl::Status DeleteSnapshot(const std::string& name) override;
  absl::Status SeekToTime(const std::string& subscription, WallTime time) override;
  absl::Status SeekToSnapshot(const std::string& subscription,
                              const std::string& snapshot) override;

  absl::StatusOr<Schema> CreateSchema(const Schema& schema) override;
  absl::StatusOr<Schema> GetSchema(const std::string& name) override;
  absl::StatusOr<Schema> CommitSchema(const Schema& schema) override;
  absl::Status DeleteSchema(const std::string& name) override;

 private:
  enum class Repeat { kNever, kIfMayPass, kDeletion };

  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(Repeat repeat, Stub& stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request);

  const std::shared_ptr<Client> client_;
  const std::unique_ptr<google::pubsub::v1::Publisher::Stub> publisher_;
  const std::unique_ptr<google::pubsub::v1::Subscriber::Stub> subscriber_;
  const std::unique_ptr<google::pubsub::v1::SchemaService::Stub> schemas_;
};

}  // namespace lockstep::pubsub::grpc_client
