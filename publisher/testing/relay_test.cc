#include "publisher/testing/relay_test.h"

#include <fmt/format.h>

#include <algorithm>

#include "publisher/dispatch/pubsub_dispatcher.h"

namespace lockstep::publisher {

void Recorder::Note(const std::function<void()>& change) {
  {
    std::scoped_lock lock(mu);
    change();
  }
  changed_.notify_all();
}

void Recorder::OnClaimed(const std::vector<OutboxRow>& rows) {
  Note([&] {
    claimed += static_cast<int>(rows.size());
    largest_claim = std::max(largest_claim, static_cast<int>(rows.size()));
  });
}
void Recorder::OnRow(const RowEvent& event) {
  using Kind = RowEvent::Kind;
  const OutboxRow& row = event.row;
  Note([&] {
    switch (event.kind) {
      case Kind::kPublished:
        ++published;
        break;
      case Kind::kKnown:
        ++known;
        break;
      case Kind::kDedupHit:
        ++dedup_hits;
        break;
      case Kind::kFailed:
        ++failed;
        break;
      case Kind::kRetry:
        retries.push_back(
            {row.attempts + 1, std::string(event.code), event.wait, std::string(event.error)});
        break;
      case Kind::kUnblamed:
        retries.push_back(
            {row.attempts, std::string(event.code), event.wait, std::string(event.error)});
        break;
      case Kind::kDead:
        dead.push_back(fmt::format("{}:{} {}", row.aggregate_id, row.version, event.code));
        break;
      case Kind::kOutage:
        outages.push_back(fmt::format("{} {}", row.topic, event.code));
        pauses.push_back(event.wait);
        break;
      case Kind::kLostLease:
        ++lost;
        lost_state = event.state;
        break;
    }
  });
}
void Recorder::OnGone(int64_t rows) {
  Note([&] { gone += rows; });
}

void Recorder::OnDatabaseError(const absl::Status&) {
  Note([&] { ++database_errors; });
}
void Recorder::OnShards(const std::vector<int>& held, int) {
  Note([&] { shards = held; });
}

bool Recorder::Await(const std::function<bool()>& condition) {
  std::unique_lock lock(mu);
  return changed_.wait_for(lock, std::chrono::seconds(20), condition);
}

RelayTest::RelayTest() {
  pubsub::Topic topic;
  topic.name = "projects/p/topics/shop.events";
  if (!bus_.admin().CreateTopic(topic).ok()) throw std::runtime_error("no topic");
}

RelayOptions RelayTest::Options() {
  RelayOptions options;
  options.table = kTable;
  options.retry.base = Millis(20);
  options.retry.cap = Millis(40);
  options.retry.jitter_amount = 0;
  options.poll_floor = Millis(50);
  options.poll_interval = Millis(200);
  return options;
}

std::unique_ptr<RelayTest::Running> RelayTest::StartRelay(const RelayOptions& options,
                                                          const std::string& name,
                                                          std::unique_ptr<Dispatcher> dispatcher,
                                                          Backoff::Random random) {
  auto running = std::make_unique<Running>();
  if (dispatcher == nullptr) {
    PubsubDispatcher::Publishers publishers;
    publishers[options.table] = bus_.NewPublisher({});
    dispatcher =
        std::make_unique<PubsubDispatcher>(std::move(publishers), MapTopics("p", {}, true));
  }
  running->own_dispatcher = std::move(dispatcher);
  Relay::Environment environment;
  environment.database = db_.url();
  environment.instance = name;
  environment.clock = clock_;
  environment.random = std::move(random);
  running->relay = std::make_unique<Relay>(options, std::move(environment),
                                           *running->own_dispatcher, running->events);
  EXPECT_TRUE(running->relay->Start().ok());
  return running;
}

std::unique_ptr<RelayTest::Running> RelayTest::StartOwner(const RelayOptions& options,
                                                          std::unique_ptr<Dispatcher> dispatcher,
                                                          Backoff::Random random) {
  auto running = StartRelay(options, "a", std::move(dispatcher), std::move(random));
  running->relay->SetShards({0}, 1);
  return running;
}

std::string RelayTest::Published(const std::string& topic) const {
  std::vector<std::string> names;
  for (const auto& published : bus_.published()) {
    if (published.topic != "projects/p/topics/" + topic) continue;
    names.push_back(fmt::format("{}:{}", published.message.ordering_key,
                                published.message.attributes.at("version")));
  }
  return fmt::format("{}", fmt::join(names, " "));
}

bool RelayTest::AwaitPublished(size_t count) const {
  return bus_.Await([&] { return bus_.published().size() >= count; });
}

void RelayTest::EndPublisherSessions() {
  db_.Run(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
      "current_database() AND application_name = 'lockstep-publisher'");
}

void RelayTest::MakeDue() {
  db_.Run(
      "UPDATE shop.outbox_status SET available_at = now() "
      "WHERE available_at < 'infinity' AND published_at IS NULL AND lock_token IS NULL;"
      "SELECT pg_notify(lockstep.wake_channel('shop.outbox'), '')");
}

}  // namespace lockstep::publisher
