#include "publisher/routes/route_dispatcher.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "envelope/http/endpoint.h"
#include "platform/status.h"
#include "publisher/dispatch/failure.h"
#include "publisher/routes/http_dispatcher.h"

namespace lockstep::publisher {

// A route of one topic, with what is known of it. Shared with what is under way.
struct RouteDispatcher::Target {
  std::string name;
  Dispatcher* dispatcher = nullptr;
  struct Counters {
    prometheus::Counter* taken = nullptr;
    prometheus::Counter* failed = nullptr;
  };
  std::map<std::string, Counters> counters;  // by outbox

  mutable std::mutex mu;
  RouteStatus status;

  void Note(const std::string& table, const std::vector<DispatchResult>& results) {
    int64_t good = 0;
    int64_t bad = 0;
    const DispatchResult* outage = nullptr;
    for (const DispatchResult& result : results) {
      const Fault fault = FaultOf(result.status);
      if (result.status.ok() || fault == Fault::kKnown) {
        ++good;
      } else if (fault != Fault::kBehind && fault != Fault::kCancelled) {
        ++bad;
        if (fault == Fault::kOutage) outage = &result;
      }
    }
    if (const auto own = counters.find(table); own != counters.end()) {
      own->second.taken->Increment(static_cast<double>(good));
      own->second.failed->Increment(static_cast<double>(bad));
    }
    const std::scoped_lock lock(mu);
    status.taken += good;
    if (good > 0) {
      status.last_taken = Clock::System().Now();
      status.outage.clear();
    }
    if (outage != nullptr) status.outage = MessageOf(outage->status).substr(0, 500);
  }
};

// Rows under way by several routes. Answers may come on several threads.
struct RouteDispatcher::Sending {
  std::vector<RowPtr> rows;
  std::vector<std::shared_ptr<Target>> targets;
  std::vector<std::vector<size_t>> places;           // by target: of its rows among `rows`
  std::vector<std::vector<DispatchResult>> results;  // by target
  Done done;
  std::atomic<size_t> left = 0;

  void OneAnswered() {
    if (--left == 0) done(Join());
  }
  std::vector<DispatchResult> Join();
};

namespace {

// Which of two failures of a row counts. What may pass by itself first: the row's own fault shows
// again afterwards.
int Weight(const absl::Status& status) {
  switch (FaultOf(status)) {
    case Fault::kOutage:
      return 3;
    case Fault::kRefused:
    case Fault::kRow:
      return 2;
    case Fault::kCancelled:
      return 1;
    case Fault::kBehind:
    case Fault::kKnown:
      break;
  }
  return 0;
}

}  // namespace

std::vector<DispatchResult> RouteDispatcher::Sending::Join() {
  std::vector<DispatchResult> joined(rows.size());
  std::vector<bool> whole(rows.size(), true);
  for (size_t i = 0; i < rows.size(); ++i) joined[i].taken_by = rows[i]->taken_by;
  for (size_t t = 0; t < targets.size(); ++t) {
    for (size_t n = 0; n < places[t].size(); ++n) {
      const size_t at = places[t][n];
      DispatchResult& into = joined[at];
      DispatchResult answer = n < results[t].size()
                                  ? std::move(results[t][n])
                                  : DispatchResult{.status = absl::InternalError(
                                                       "the route gave no answer for the row")};
      if (answer.status.ok() || FaultOf(answer.status) == Fault::kKnown) {
        into.taken_by[targets[t]->name] = answer.message_id;
        continue;
      }
      if (!whole[at] && Weight(into.status) >= Weight(answer.status)) continue;
      answer.taken_by = std::move(into.taken_by);
      into = std::move(answer);
      whole[at] = false;
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!whole[i]) continue;
    // The first route's that has one; of those that still count.
    for (const auto& target : targets) {
      const auto taken = joined[i].taken_by.find(target->name);
      if (taken != joined[i].taken_by.end() && joined[i].message_id.empty()) {
        joined[i].message_id = taken->second;
      }
    }
  }
  return joined;
}

RouteDispatcher::RouteDispatcher(const PublisherConfig& config, Dispatcher& bus,
                                 MetricsRegistry& metrics)
    : topics_(config.topics), options_(config.routes), bus_(bus), metrics_(metrics) {
  for (const RelayOptions& relay : config.tables) tables_.push_back(relay.table);
}

RouteDispatcher::~RouteDispatcher() = default;

absl::StatusOr<Dispatcher*> RouteDispatcher::Find(const Route& route) {
  if (route.kind == Route::Kind::kBus) return &bus_;
  if (route.kind == Route::Kind::kCustom) {
    const auto found = custom_.find(route.target);
    if (found != custom_.end()) return found->second;
    return FailedPrecondition(
        "no dispatcher is registered under the name {}: the program that runs the publisher adds "
        "it with PublisherService::AddRoute (docs/embedding.md); lockstep-publisher has none",
        route.target);
  }
  auto& made = http_[route.target];
  if (made == nullptr) {
    const auto own = options_.endpoints.find(route.target);
    const auto& options = own == options_.endpoints.end() ? options_.defaults : own->second;
    ASSIGN_OR_RETURN(auto endpoint, envelope::Endpoint::Open(route.target, options));
    if (client_ == nullptr) {
      client_ = std::make_unique<http::Client>(
          http::ClientOptions{.max_requests = std::max(512, 4 * options_.concurrency),
                              .max_requests_per_origin = options_.concurrency});
    }
    made = std::make_unique<HttpDispatcher>(
        route.name, std::shared_ptr<envelope::Endpoint>(std::move(endpoint)), *client_);
  }
  return made.get();
}

absl::Status RouteDispatcher::Open() {
  if (open_) return absl::OkStatus();
  for (const auto& [topic, texts] : topics_) {
    const auto routes = ParseRoutes(texts);
    if (!routes.ok()) return InvalidArgument("topics.{}: {}", topic, MessageOf(routes.status()));
    auto& targets = targets_[topic];
    targets.clear();
    for (const Route& route : *routes) {
      const auto dispatcher = Find(route);
      if (!dispatcher.ok()) {
        return absl::Status(dispatcher.status().code(),
                            fmt::format("topics.{}: {}", topic, MessageOf(dispatcher.status())));
      }
      const auto target = std::make_shared<Target>();
      target->name = target->status.route = route.name;
      target->dispatcher = *dispatcher;
      for (const std::string& table : tables_) {
        const auto counter = [&](const char* result) {
          return &CounterOf(
              metrics_, "outbox_route_total", "rows by route",
              {{"table", table}, {"topic", topic}, {"route", route.name}, {"result", result}});
        };
        target->counters[table] = {counter("success"), counter("failure")};
      }
      targets.push_back(target);
    }
  }
  open_ = true;
  return absl::OkStatus();
}

void RouteDispatcher::Send(Target& target, const std::string& table, const std::string& topic,
                           std::vector<RowPtr> rows, Done done) {
  target.dispatcher->Dispatch(table, topic, std::move(rows), std::move(done));
}

void RouteDispatcher::Dispatch(const std::string& table, const std::string& topic,
                               std::vector<RowPtr> rows, Done done) {
  const auto found = targets_.find(topic);
  if (found == targets_.end()) return bus_.Dispatch(table, topic, std::move(rows), std::move(done));
  const auto& targets = found->second;
  const bool fresh =
      std::ranges::all_of(rows, [](const RowPtr& row) { return row->taken_by.empty(); });
  if (targets.size() == 1 && fresh) {  // as a rule
    return Send(
        *targets[0], table, topic, std::move(rows),
        [table, target = targets[0], done = std::move(done)](std::vector<DispatchResult> results) {
          target->Note(table, results);
          done(std::move(results));
        });
  }
  const auto sending = std::make_shared<Sending>();
  sending->targets = targets;
  sending->places.resize(targets.size());
  sending->results.resize(targets.size());
  sending->done = std::move(done);
  std::vector<std::vector<RowPtr>> parts(targets.size());
  for (size_t t = 0; t < targets.size(); ++t) {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i]->taken_by.contains(targets[t]->name)) continue;
      parts[t].push_back(rows[i]);
      sending->places[t].push_back(i);
    }
  }
  sending->rows = std::move(rows);
  sending->left = targets.size() + 1;  // this call counts, or an early answer would end it
  for (size_t t = 0; t < targets.size(); ++t) {
    if (parts[t].empty()) {
      sending->OneAnswered();
      continue;
    }
    Send(*targets[t], table, topic, std::move(parts[t]),
         [table, sending, t](std::vector<DispatchResult> results) {
           sending->targets[t]->Note(table, results);
           sending->results[t] = std::move(results);
           sending->OneAnswered();
         });
  }
  sending->OneAnswered();
}

RequestShape RouteDispatcher::Shape(const std::string& topic) const {
  const auto found = targets_.find(topic);
  if (found == targets_.end()) return bus_.Shape(topic);
  RequestShape shape;
  for (const auto& target : found->second) {
    const RequestShape wanted = target->dispatcher->Shape(topic);
    shape.rows = std::min(shape.rows, wanted.rows);
    shape.one_key = shape.one_key || wanted.one_key;
    shape.counted = shape.counted && wanted.counted;
  }
  return shape;
}

void RouteDispatcher::SetMaxRequests(const std::string& table, int requests) {
  bus_.SetMaxRequests(table, requests);
  for (const auto& [name, dispatcher] : custom_) dispatcher->SetMaxRequests(table, requests);
}

std::vector<RouteStatus> RouteDispatcher::Status(const std::string& topic) const {
  std::vector<RouteStatus> all;
  const auto found = targets_.find(topic);
  if (!open_ || found == targets_.end()) return all;
  for (const auto& target : found->second) {
    const std::scoped_lock lock(target->mu);
    all.push_back(target->status);
  }
  return all;
}

}  // namespace lockstep::publisher
