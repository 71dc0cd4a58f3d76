#include <mutex>
#include <optional>
#include <utility>

#include "emulator/core/broker.h"
#include "emulator/core/publish_rules.h"
#include "emulator/schema/schema_registry.h"
#include "emulator/wire/field_rules.h"
#include "emulator/wire/names.h"
#include "emulator/wire/proto_time.h"
#include "platform/duration.h"
#include "platform/status.h"

namespace lockstep::emulator {

namespace pb = google::pubsub::v1;

Broker::Broker(Timekeeper* timekeeper, SchemaRegistry* schemas)
    : timekeeper_(timekeeper),
      schemas_(schemas),
      clock_(timekeeper->clock()),
      // Long numbers that go on after a restart, as the service's do.
      next_message_id_(static_cast<uint64_t>(
          std::chrono::duration_cast<Millis>(clock_.Now().time_since_epoch()).count() * 10'000)) {}

Broker::~Broker() = default;

absl::Status Broker::CheckTopic(pb::Topic* config) const {
  RETURN_IF_ERROR(
      RefuseUnsupported(*config, {"name", "labels", "schema_settings", "message_retention_duration",
                                  // Output only: the service ignores them.
                                  "satisfies_pzs", "state"}));
  RETURN_IF_ERROR(CheckLabels(config->labels()));
  if (config->has_message_retention_duration()) {
    const Millis retention = FromProto(config->message_retention_duration());
    if (retention < std::chrono::minutes(10) || retention > std::chrono::hours(31 * 24)) {
      return InvalidArgument("Invalid message_retention_duration: {} is not within 10m and 744h.",
                             FormatDuration(retention));
    }
  }
  if (config->has_schema_settings() && config->schema_settings().schema() != kDeletedSchema) {
    RETURN_IF_ERROR(schemas_->CheckSettings(config->schema_settings()));
  }
  SetState(1, config);  // ACTIVE
  return absl::OkStatus();
}

absl::StatusOr<pb::Topic> Broker::CreateTopic(pb::Topic config) {
  RETURN_IF_ERROR(ResourceName::Parse(config.name(), "topics").status());
  RETURN_IF_ERROR(CheckTopic(&config));
  auto topic = std::make_shared<Topic>(config, &next_message_id_, clock_);
  std::unique_lock lock(mu_);
  if (!topics_.emplace(config.name(), std::move(topic)).second) {
    return MakeStatus(absl::StatusCode::kAlreadyExists,
                      "Resource already exists in the project (resource={}).", config.name());
  }
  return config;
}

absl::StatusOr<std::shared_ptr<Topic>> Broker::FindTopic(const std::string& name) const {
  RETURN_IF_ERROR(ResourceName::Parse(name, "topics").status());
  std::shared_lock lock(mu_);
  const auto it = topics_.find(name);
  if (it == topics_.end()) return NotFound("Resource not found (resource={}).", name);
  return it->second;
}

absl::StatusOr<pb::Topic> Broker::GetTopic(const std::string& name) {
  ASSIGN_OR_RETURN(const auto topic, FindTopic(name));
  return topic->Config();
}

absl::StatusOr<pb::Topic> Broker::UpdateTopic(const pb::UpdateTopicRequest& request) {
  ASSIGN_OR_RETURN(const auto topic, FindTopic(request.topic().name()));
  pb::Topic config = topic->Config();
  RETURN_IF_ERROR(
      RefuseUnsupported(request.topic(), {"name", "labels", "schema_settings",
                                          "message_retention_duration", "satisfies_pzs", "state"}));
  RETURN_IF_ERROR(ApplyMask(request.update_mask(), request.topic(),
                            {"labels", "message_retention_duration", "schema_settings"}, &config));
  RETURN_IF_ERROR(CheckTopic(&config));
  topic->SetConfig(config);
  return config;
}

absl::StatusOr<Page<pb::Topic>> Broker::ListTopics(const std::string& project,
                                                   const PageRequest& page) {
  RETURN_IF_ERROR(CheckProject(project));
  std::map<std::string, std::shared_ptr<Topic>> topics;
  {
    std::shared_lock lock(mu_);
    topics = topics_;
  }
  return ListPage<pb::Topic>(topics, project + "/topics/", page, [](const auto& topic) {
    return std::optional<pb::Topic>(topic->Config());
  });
}

absl::StatusOr<Page<std::string>> Broker::ListTopicSubscriptions(const std::string& name,
                                                                 const PageRequest& page) {
  ASSIGN_OR_RETURN(const auto topic, FindTopic(name));
  std::map<std::string, std::string> names;
  for (const auto& subscription : topic->Subscriptions()) {
    const std::string each = subscription->Config().name();
    names[each] = each;
  }
  return ListPage<std::string>(names, "projects/", page,
                               [](const auto& each) { return std::optional<std::string>(each); });
}

absl::StatusOr<Page<std::string>> Broker::ListTopicSnapshots(const std::string& name,
                                                             const PageRequest& page) {
  RETURN_IF_ERROR(FindTopic(name).status());
  std::shared_lock lock(mu_);
  return ListPage<std::string>(snapshots_, "projects/", page, [&](const SnapshotPtr& each) {
    return each->proto.topic() == name ? std::optional<std::string>(each->proto.name())
                                       : std::nullopt;
  });
}

absl::Status Broker::DeleteTopic(const std::string& name) {
  ASSIGN_OR_RETURN(const auto topic, FindTopic(name));
  {
    std::unique_lock lock(mu_);
    if (topics_.erase(name) == 0) return NotFound("Resource not found (resource={}).", name);
    for (auto& [each, snapshot] : snapshots_) {
      if (snapshot->topic != topic) continue;
      auto changed = std::make_shared<KeptSnapshot>(*snapshot);
      changed->proto.set_topic(kDeletedTopic);
      snapshot = std::move(changed);
    }
  }
  for (const auto& subscription : topic->Subscriptions()) {
    pb::Subscription config = subscription->Config();
    config.set_topic(kDeletedTopic);
    subscription->SetConfig(config);
    topic->Detach(subscription.get());
  }
  return absl::OkStatus();
}

void Broker::ForgetSchema(const std::string& name) {
  std::vector<std::shared_ptr<Topic>> all;
  {
    std::shared_lock lock(mu_);
    for (const auto& [each, topic] : topics_) all.push_back(topic);
  }
  for (const auto& topic : all) {
    pb::Topic config = topic->Config();
    if (config.schema_settings().schema() != name) continue;
    config.mutable_schema_settings()->set_schema(kDeletedSchema);
    topic->SetConfig(config);
  }
}

absl::StatusOr<std::vector<std::string>> Broker::Publish(const pb::PublishRequest& request) {
  ASSIGN_OR_RETURN(const auto topic, FindTopic(request.topic()));
  RETURN_IF_ERROR(CheckPublish(request));
  if (const auto settings = topic->Schema(); settings != nullptr) {
    RETURN_IF_ERROR(schemas_->CheckMessages(*settings, request));
  }
  std::vector<std::shared_ptr<Message>> messages;
  messages.reserve(static_cast<size_t>(request.messages_size()));
  for (const auto& message : request.messages()) messages.push_back(MakeMessage(message));
  return topic->Publish(std::move(messages));
}

}  // namespace lockstep::emulator
