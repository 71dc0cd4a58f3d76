#include "pubsub/provision/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "platform/config/config.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "platform/text.h"
#include "pubsub/names.h"

namespace lockstep::pubsub {
namespace {

std::string Short(const std::string& full) { return std::string(ShortName(full)); }

// A field that can be changed, by its name in google.pubsub.v1.
struct Field {
  const char* path;
  bool differs;
  std::string shown;
};

// The step that changes what differs, if anything does.
void AddUpdate(const std::string& what, const std::vector<Field>& fields,
               const std::function<absl::Status(Admin&, const std::vector<std::string>&)>& update,
               Plan& plan) {
  std::vector<std::string> paths, shown;
  for (const Field& field : fields) {
    if (!field.differs) continue;
    if (paths.empty() || paths.back() != field.path) paths.emplace_back(field.path);
    shown.push_back(field.shown);
  }
  if (paths.empty()) return;
  plan.steps.push_back({"update", what, fmt::format("{}", fmt::join(shown, ", ")),
                        [update, paths](Admin& admin) { return update(admin, paths); }});
}

std::string Show(const char* name, std::optional<Millis> value) {
  return fmt::format("{} {}", name, value.has_value() ? FormatDuration(*value) : "none");
}
std::string Show(const char* name, bool value) {
  return fmt::format("{} {}", name, value ? "on" : "off");
}

absl::Status PlanTopic(const Wanted& wanted, Topic topic, Admin& admin, Plan& plan) {
  const std::string name = topic.name;
  topic.name = TopicName(wanted.project, name);
  if (!topic.schema.schema.empty()) {
    topic.schema.schema = SchemaName(wanted.project, topic.schema.schema);
  }
  if (!name.ends_with(".events") && !name.ends_with(".dlq")) {
    plan.warnings.push_back(fmt::format("topic {} is not named <context>.events", name));
  }
  const auto found = admin.GetTopic(topic.name);
  if (absl::IsNotFound(found.status())) {
    plan.steps.push_back({"create", "topic " + name, Show("retention", topic.retention),
                          [topic](Admin& a) { return a.CreateTopic(topic).status(); }});
    return absl::OkStatus();
  }
  if (!found.ok()) return found.status();
  AddUpdate(
      "topic " + name,
      {{"message_retention_duration", found->retention != topic.retention,
        Show("retention", topic.retention)},
       {"schema_settings", found->schema.schema != topic.schema.schema,
        "schema " + Short(topic.schema.schema)},
       {"schema_settings",
        !topic.schema.schema.empty() && found->schema.encoding != topic.schema.encoding,
        "another schema encoding"}},
      [topic](Admin& a, const auto& paths) { return a.UpdateTopic(topic, paths).status(); }, plan);
  return absl::OkStatus();
}

std::string Describe(const Subscription& s) {
  std::string text =
      fmt::format("{}, ack deadline {}, {}", Show("ordering", s.ordering),
                  FormatDuration(s.ack_deadline), Show("retain acked", s.retain_acked));
  if (s.exactly_once) text += ", exactly once";
  if (!s.dead_letter_topic.empty()) text += ", dead letters to " + Short(s.dead_letter_topic);
  return text;
}

// Those of the subscription's slots that rebuilds have made: a group's files go on naming the one.
std::vector<std::string> SlotsOf(const std::string& full, const std::vector<Subscription>& there) {
  std::vector<std::string> slots;
  for (const Subscription& subscription : there) {
    if (subscription.name != full && DeclaredSubscription(subscription.name) == full) {
      slots.push_back(Short(subscription.name));
    }
  }
  return slots;
}

absl::Status PlanSubscription(const Wanted& wanted, Subscription want, bool replaced, Admin& admin,
                              Plan& plan) {
  const std::string name = want.name;
  const std::string topic = want.topic;
  want.name = SubscriptionName(wanted.project, name);
  want.topic = TopicName(wanted.project, topic);
  if (!want.dead_letter_topic.empty()) {
    if (want.dead_letter_topic != DeclaredSubscription(name) + ".dlq") {
      plan.warnings.push_back(
          fmt::format("the dead-letter topic of {} is not named {}.dlq", name, name));
    }
    want.dead_letter_topic = TopicName(wanted.project, want.dead_letter_topic);
  }
  if (!name.starts_with(topic + ".")) {
    plan.warnings.push_back(fmt::format("subscription {} is not named {}.<service>", name, topic));
  }
  const auto found = admin.GetSubscription(want.name);
  if (absl::IsNotFound(found.status())) {
    if (replaced) return absl::OkStatus();
    plan.steps.push_back({"create", "subscription " + name, Describe(want),
                          [want](Admin& a) { return a.CreateSubscription(want).status(); }});
    return absl::OkStatus();
  }
  if (!found.ok()) return found.status();
  if (found->topic != want.topic || found->ordering != want.ordering ||
      found->filter != want.filter) {
    return FailedPrecondition(
        "subscription {} has topic {}, {} and filter '{}', which can't be changed any more; delete "
        "it (its backlog goes too) or give the new one another name",
        name, Short(found->topic), Show("ordering", found->ordering), found->filter);
  }
  AddUpdate(
      "subscription " + name,
      {{"ack_deadline_seconds", found->ack_deadline != want.ack_deadline,
        Show("ack deadline", want.ack_deadline)},
       {"message_retention_duration", found->retention != want.retention,
        Show("retention", want.retention)},
       {"retain_acked_messages", found->retain_acked != want.retain_acked,
        Show("retain acked", want.retain_acked)},
       {"enable_exactly_once_delivery", found->exactly_once != want.exactly_once,
        Show("exactly once", want.exactly_once)},
       {"dead_letter_policy", found->dead_letter_topic != want.dead_letter_topic,
        "dead letters to " + Short(want.dead_letter_topic)},
       {"dead_letter_policy",
        !want.dead_letter_topic.empty() && want.max_delivery_attempts > 0 &&
            found->max_delivery_attempts != want.max_delivery_attempts,
        fmt::format("{} delivery attempts", want.max_delivery_attempts)}},
      [want](Admin& a, const auto& paths) { return a.UpdateSubscription(want, paths).status(); },
      plan);
  return absl::OkStatus();
}

std::set<std::string> DeadLetterTopics(const Wanted& wanted) {
  std::set<std::string> names;
  for (const Subscription& subscription : wanted.subscriptions) {
    if (!subscription.dead_letter_topic.empty()) names.insert(subscription.dead_letter_topic);
  }
  return names;
}

absl::Status PlanSchema(const Wanted& wanted, const Wanted::SchemaFile& file, Admin& admin,
                        Plan& plan) {
  const auto text = ReadWholeFile(file.file);
  if (!text.ok()) return NotFound("schema file {}", MessageOf(text.status()));
  const Schema schema{SchemaName(wanted.project, file.name), *text};
  const auto found = admin.GetSchema(schema.name);
  if (absl::IsNotFound(found.status())) {
    plan.steps.push_back({"create", "schema " + file.name, "from " + file.file,
                          [schema](Admin& a) { return a.CreateSchema(schema).status(); }});
    return absl::OkStatus();
  }
  if (!found.ok()) return found.status();
  if (found->definition != schema.definition) {
    plan.steps.push_back({"update", "schema " + file.name, "a new revision from " + file.file,
                          [schema](Admin& a) { return a.CommitSchema(schema).status(); }});
  }
  return absl::OkStatus();
}

}  // namespace

void Bind(ConfigSection& config, Wanted& wanted) {
  config.List("schemas", "", [&](ConfigSection& item) {
    Wanted::SchemaFile schema;
    item.Key("name", &schema.name, "the schema's id");
    item.Key("file", &schema.file, "protobuf source, relative to this file");
    if (!schema.file.empty() && schema.file[0] != '/' && !item.Directory().empty()) {
      schema.file = item.Directory() + "/" + schema.file;
    }
    wanted.schemas.push_back(schema);
  });
  config.List("topics", "name", [&](ConfigSection& item) {
    Topic topic;
    Millis retention{0};
    item.Key("name", &topic.name, "the topic's id, <context>.events");
    item.Key("retention", &retention,
             "how long the topic keeps messages for new subscriptions and Seek; 0 = not at all");
    item.Key("schema", &topic.schema.schema, "id of the schema that messages must satisfy");
    item.Choice(
        "schema_encoding", &topic.schema.encoding,
        {{"binary", SchemaSettings::Encoding::kBinary}, {"json", SchemaSettings::Encoding::kJson}},
        "how messages are encoded");
    if (retention.count() > 0) topic.retention = retention;
    wanted.topics.push_back(topic);
  });
  config.List("subscriptions", "", [&](ConfigSection& item) {
    Subscription subscription{
        .ack_deadline = Millis(60'000), .ordering = true, .retain_acked = true};
    item.Key("name", &subscription.name, "the subscription's id, <topic>.<service>");
    item.Key("topic", &subscription.topic, "id of its topic");
    item.Key("ordering", &subscription.ordering, "deliver each ordering key in order");
    item.Key("ack_deadline", &subscription.ack_deadline, "of the subscription, 10s to 600s");
    item.Key("retain_acked", &subscription.retain_acked, "keep acked messages, for resets");
    item.Key("retention", &subscription.retention, "how long messages are kept");
    item.Key("exactly_once", &subscription.exactly_once, "exactly-once delivery");
    item.Key("filter", &subscription.filter, "Pub/Sub filter on attributes");
    item.Key("dead_letter_topic", &subscription.dead_letter_topic,
             "id of the subscription's own dead-letter topic; empty = none (Lockstep keeps dead "
             "letters in Postgres)");
    item.Key("max_delivery_attempts", &subscription.max_delivery_attempts,
             "before Pub/Sub dead-letters; 0 = its default");
    wanted.subscriptions.push_back(subscription);
  });
}

absl::StatusOr<Plan> MakePlan(const Wanted& wanted, Admin& admin) {
  Plan plan;
  for (const auto& schema : wanted.schemas)
    RETURN_IF_ERROR(PlanSchema(wanted, schema, admin, plan));
  for (const Topic& topic : wanted.topics) RETURN_IF_ERROR(PlanTopic(wanted, topic, admin, plan));
  // Pub/Sub refuses a subscription whose dead-letter topic is not there.
  for (const std::string& name : DeadLetterTopics(wanted)) {
    const bool listed = std::any_of(wanted.topics.begin(), wanted.topics.end(),
                                    [&](const Topic& topic) { return topic.name == name; });
    if (listed || admin.GetTopic(TopicName(wanted.project, name)).ok()) continue;
    RETURN_IF_ERROR(PlanTopic(wanted, {.name = name}, admin, plan));
  }
  if (wanted.subscriptions.empty()) return plan;
  auto there = admin.ListSubscriptions(wanted.project);
  if (absl::IsPermissionDenied(there.status())) {
    plan.warnings.push_back(fmt::format(
        "no right to list subscriptions: one that a rebuild has replaced would be made again ({})",
        MessageOf(there.status())));
    there = std::vector<Subscription>();
  }
  RETURN_IF_ERROR(there.status());
  for (const Subscription& subscription : wanted.subscriptions) {
    const auto slots = SlotsOf(SubscriptionName(wanted.project, subscription.name), *there);
    RETURN_IF_ERROR(PlanSubscription(wanted, subscription, !slots.empty(), admin, plan));
    for (const std::string& slot : slots) {
      Subscription same = subscription;
      same.name = slot;
      RETURN_IF_ERROR(PlanSubscription(wanted, same, /*replaced=*/false, admin, plan));
    }
  }
  return plan;
}

std::vector<std::string> IamCommands(const Wanted& wanted) {
  std::vector<std::string> commands;
  const auto allow = [&](const char* kind, const std::string& name, std::string_view account,
                         const char* role) {
    commands.push_back(
        fmt::format("gcloud pubsub {} add-iam-policy-binding {} --project={} "
                    "--member=serviceAccount:{} --role=roles/pubsub.{}",
                    kind, name, wanted.project, account, role));
  };
  const std::set<std::string> dead_letters = DeadLetterTopics(wanted);
  for (const Topic& topic : wanted.topics) {
    if (dead_letters.contains(topic.name)) continue;  // nobody of ours publishes there
    allow("topics", topic.name, "PUBLISHER", "publisher");
  }
  for (const Subscription& subscription : wanted.subscriptions) {
    allow("subscriptions", subscription.name, "RUNNER", "subscriber");
  }
  // Pub/Sub itself moves dead letters, as its own service agent.
  constexpr std::string_view kAgent =
      "service-PROJECT_NUMBER@gcp-sa-pubsub.iam.gserviceaccount.com";
  for (const Subscription& subscription : wanted.subscriptions) {
    if (subscription.dead_letter_topic.empty()) continue;
    allow("topics", subscription.dead_letter_topic, kAgent, "publisher");
    allow("subscriptions", subscription.name, kAgent, "subscriber");
  }
  return commands;
}

}  // namespace lockstep::pubsub
