#include <utility>

#include "emulator/core/broker.h"
#include "emulator/wire/field_rules.h"
#include "emulator/wire/page.h"

namespace lockstep::emulator {
namespace {

absl::Status RefuseUnsupportedTopic(const pb::Topic& config) {
  return RefuseUnsupported(config,
                           {"name", "labels", "schema_settings", "message_retention_duration",
                            // Output only: the service ignores them.
                            "satisfies_pzs", "state"});
}

}  // namespace

Broker::Broker(Timekeeper* timekeeper, SchemaRegistry* schemas, Journal* journal)
    : timekeeper_(timekeeper),
      schemas_(schemas),
      journal_(journal),
      clock_(timekeeper->clock()),
      // Long numbers that go on after a restart, as the service's do.
      next_message_id_(static_cast<uint64_t>(
          std::chrono::duration_cast<Millis>(clock_.Now().time_since_epoch()).count() * 10'000)) {}

absl::Status Broker::CheckTopic(pb::Topic* config) const {
  RETURN_IF_ERROR(CheckLabels(config->labels()));
  if (config->has_message_retention_duration()) {
    RETURN_IF_ERROR(CheckDuration("message_retention_duration",
                                  config->message_retention_duration(), std::chrono::minutes(10),
                                  std::chrono::hours(31 * 24)));
  }
  if (config->has_schema_settings() && config->schema_settings().schema() != kDeletedSchema) {
    RETURN_IF_ERROR(schemas_->CheckSettings(config->schema_settings()));
  }
  SetState(1, config);  // ACTIVE
  return absl::OkStatus();
}

absl::StatusOr<pb::Topic> Broker::CreateTopic(const pb::Topic& request) {
  pb::Topic config = request;
  RETURN_IF_ERROR(ResourceName::Parse(config.name(), "topics").status());
  RETURN_IF_ERROR(RefuseUnsupportedTopic(config));
  RETURN_IF_ERROR(CheckTopic(&config));
  std::scoped_lock changes(changes_);
  if (FindTopic(config.name()).ok()) return ResourceExists(config.name());
  const uint64_t number = next_topic_++;
  if (journal_ != nullptr) RETURN_IF_ERROR(journal_->SaveTopic(number, config, /*deleted=*/false));
  auto topic = std::make_shared<Topic>(config, number, &next_message_id_, journal_, clock_);
  RETURN_IF_ERROR(Insert(config.name(), std::move(topic), &topics_));
  return config;
}

absl::StatusOr<pb::Topic> Broker::GetTopic(const pb::GetTopicRequest& request) {
  ASSIGN_OR_RETURN(const auto topic, FindTopic(request.topic()));
  return topic->Config();
}

absl::StatusOr<pb::Topic> Broker::UpdateTopic(const pb::UpdateTopicRequest& request) {
  std::scoped_lock changes(changes_);
  ASSIGN_OR_RETURN(const auto topic, FindTopic(request.topic().name()));
  pb::Topic config = topic->Config();
  RETURN_IF_ERROR(RefuseUnsupportedTopic(request.topic()));
  RETURN_IF_ERROR(ApplyMask(request.update_mask(), request.topic(),
                            {"labels", "message_retention_duration", "schema_settings"}, &config));
  RETURN_IF_ERROR(CheckTopic(&config));
  if (journal_ != nullptr) {
    RETURN_IF_ERROR(journal_->SaveTopic(topic->number(), config, /*deleted=*/false));
  }
  topic->SetConfig(config);
  return config;
}

absl::StatusOr<pb::ListTopicsResponse> Broker::ListTopics(const pb::ListTopicsRequest& request) {
  RETURN_IF_ERROR(CheckProject(request.project()));
  return ListPage(
      request, Copy(topics_), request.project() + "/topics/",
      [](const auto& topic) { return topic->Config(); }, &pb::ListTopicsResponse::mutable_topics);
}

absl::StatusOr<pb::ListTopicSubscriptionsResponse> Broker::ListTopicSubscriptions(
    const pb::ListTopicSubscriptionsRequest& request) {
  ASSIGN_OR_RETURN(const auto topic, FindTopic(request.topic()));
  ByName<std::string> names;
  for (const auto& each : topic->Subscriptions()) names[each->name()] = each->name();
  return ListPage(request, names, "projects/", std::identity(),
                  &pb::ListTopicSubscriptionsResponse::mutable_subscriptions);
}

absl::StatusOr<pb::ListTopicSnapshotsResponse> Broker::ListTopicSnapshots(
    const pb::ListTopicSnapshotsRequest& request) {
  RETURN_IF_ERROR(FindTopic(request.topic()).status());
  ByName<std::string> names;
  for (const auto& [name, snapshot] : Copy(snapshots_)) {
    if (snapshot->proto.topic() == request.topic()) names[name] = name;
  }
  return ListPage(request, names, "projects/", std::identity(),
                  &pb::ListTopicSnapshotsResponse::mutable_snapshots);
}

absl::Status Broker::DeleteTopic(const pb::DeleteTopicRequest& request) {
  std::scoped_lock changes(changes_);
  if (journal_ != nullptr) {
    ASSIGN_OR_RETURN(const auto found, FindTopic(request.topic()));
    RETURN_IF_ERROR(journal_->SaveTopic(found->number(), found->Config(), /*deleted=*/true));
  }
  ASSIGN_OR_RETURN(const auto topic, Remove(request.topic(), "topics", &topics_));
  {
    std::unique_lock lock(mu_);
    for (auto& [name, snapshot] : snapshots_) {
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

absl::Status Broker::DeleteSchema(const pb::DeleteSchemaRequest& request) {
  std::scoped_lock changes(changes_);
  RETURN_IF_ERROR(schemas_->Delete(request.name()));
  for (const auto& [name, topic] : Copy(topics_)) {
    pb::Topic config = topic->Config();
    if (config.schema_settings().schema() != request.name()) continue;
    config.mutable_schema_settings()->set_schema(kDeletedSchema);
    if (journal_ != nullptr) {
      RETURN_IF_ERROR(journal_->SaveTopic(topic->number(), config, /*deleted=*/false));
    }
    topic->SetConfig(config);
  }
  return absl::OkStatus();
}

}  // namespace lockstep::emulator
