#include "publisher/dispatch/pubsub_dispatcher.h"

#include <set>

#include "platform/status.h"
#include "publisher/dispatch/failure.h"
#include "publisher/dispatch/wire.h"
#include "pubsub/names.h"

namespace lockstep::publisher {

TopicNames MapTopics(std::string project, const Topics& topics, bool any) {
  std::map<std::string, std::string> targets = BusTopics(topics);
  for (const auto& [logical, routes] : topics) targets.try_emplace(logical);  // no route to the bus
  return [project = std::move(project), targets = std::move(targets),
          any](const std::string& logical) -> std::string {
    const auto found = targets.find(logical);
    if (found == targets.end()) return any ? pubsub::TopicName(project, logical) : "";
    return found->second.empty() ? "" : pubsub::TopicName(project, found->second);
  };
}

void PubsubDispatcher::Dispatch(const std::string& table, const std::string& topic,
                                std::vector<RowPtr> rows, Done done) {
  const std::string target = topics_(topic);
  if (target.empty()) {
    const absl::Status refused = InvalidArgument(
        "topic {} is not in the publisher's table `topics` (any_topic: true lets every name pass)",
        topic);
    done(std::vector<DispatchResult>(rows.size(), {refused, "", "TOPIC.NOT_CONFIGURED"}));
    return;
  }
  std::vector<DispatchResult> results(rows.size());
  std::vector<pubsub::Message> messages;
  std::vector<size_t> places;  // of the messages among the rows
  std::set<std::string> stopped;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (stopped.contains(rows[i]->aggregate_id)) {
      results[i].status = absl::AbortedError("an earlier row of the key can't be sent");
      continue;
    }
    auto message = ToMessage(*rows[i]);
    if (!message.ok()) {
      results[i] = {message.status(), "", std::string(kRowRefused)};
      stopped.insert(rows[i]->aggregate_id);
      continue;
    }
    messages.push_back(*std::move(message));
    places.push_back(i);
  }
  if (messages.empty()) {
    done(std::move(results));
    return;
  }
  publishers_.at(table)->Publish(
      target, std::move(messages),
      [results = std::move(results), places = std::move(places),
       done = std::move(done)](std::vector<absl::StatusOr<MessageId>> answers) mutable {
        for (size_t i = 0; i < answers.size() && i < places.size(); ++i) {
          DispatchResult& result = results[places[i]];
          if (answers[i].ok()) {
            result.message_id = answers[i]->value();
          } else {
            result.status = answers[i].status();
          }
        }
        done(std::move(results));
      });
}

}  // namespace lockstep::publisher
