#include "runner/testing/handler_world.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "platform/status.h"

namespace lockstep::runner {
namespace {

std::string Replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

std::string Header(const HandlerWorld::Seen& seen, const std::string& name) {
  const auto found = seen.headers.find(name);
  return found == seen.headers.end() ? "" : found->second;
}

}  // namespace

std::string EventOf(const HandlerWorld::Seen& seen) {
  return Header(seen, "lockstep-aggregate-id") + "/" + Header(seen, "lockstep-version");
}

HandlerWorld::HandlerWorld(const std::string& handlers, Answer answer, bool table)
    : server(answer ? std::move(answer)
                    : [](const Seen&) { return testing::HttpTestServer::Ok(); }) {
  static std::atomic<int> number = 0;
  file_ = std::filesystem::temp_directory_path() /
          fmt::format("lockstep_handlers_{}_{}.yaml", getpid(), number++);
  std::ofstream(file_) << "group: feed\nsubscription: s\n"
                       << (table ? "projections:\n  - {name: things, table: rm.thing, key: id, "
                                   "version: version, events: {Made: {replace: [a]}}}\n"
                                 : "")
                       << "handlers:\n"
                       << Replaced(handlers, "%URL%", server.url("/hook"));
  database.Run(
      "CREATE TABLE rm.thing (id text PRIMARY KEY, a text, version bigint NOT NULL);"
      "CREATE TABLE rm.log (seq bigint GENERATED ALWAYS AS IDENTITY, id text, version bigint, "
      "line text)");
  make_projector = [this] { return NewProjector(); };
}

HandlerWorld::~HandlerWorld() { std::filesystem::remove(file_); }

std::unique_ptr<projections::Projector> HandlerWorld::NewProjector() const {
  auto group = projections::LoadGroup(file_, {.state_schema = "feed_state", .code = code});
  if (!group.ok()) throw std::runtime_error(std::string(MessageOf(group.status())));
  return std::move(group->projector);
}

void HandlerWorld::Make(const std::string& id, int64_t first, int64_t last, const std::string& a) {
  std::vector<pubsub::Message> messages;
  for (int64_t version = first; version <= last; ++version) {
    TestEvent event{.id = id, .version = version};
    event.payload = fmt::format(R"({{"id":"{}","a":"{}"}})", id, a);
    messages.push_back(event.Message());
    messages.back().attributes["event_type"] = "Made";
  }
  const auto publisher = bus.NewPublisher({});
  PublishAndWait(*publisher, kTopic, std::move(messages));
}

std::vector<std::string> HandlerWorld::Called() const {
  std::vector<std::string> called;
  for (const Seen& seen : server.seen()) called.push_back(EventOf(seen));
  return called;
}

std::map<std::string, int> HandlerWorld::CallsByEvent() const {
  std::map<std::string, int> calls;
  for (const std::string& event : Called()) ++calls[event];
  return calls;
}

bool HandlerWorld::InOrder() const {
  std::map<std::string, int64_t> last;
  for (const Seen& seen : server.seen()) {
    int64_t& before = last[Header(seen, "lockstep-aggregate-id")];
    const int64_t version = std::stoll(Header(seen, "lockstep-version"));
    // One that comes again may come again; what is new is the next one.
    if (version > before + 1) return false;
    before = std::max(before, version);
  }
  return true;
}

}  // namespace lockstep::runner
