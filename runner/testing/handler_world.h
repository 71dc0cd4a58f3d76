#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "projections/declare/group_file.h"
#include "runner/testing/test_group.h"
#include "tests/support/http_test_server.h"

namespace lockstep::runner {

// A GroupWorld whose group has a file with handlers, a table rm.thing(id, a, version), a table
// rm.log(seq, id, version, line) for functions, and a server to call. Events are of type Made.
class HandlerWorld : public GroupWorld {
 public:
  using Seen = testing::HttpTestServer::Seen;
  using Answer = std::function<std::string(const Seen&)>;

  // `handlers`: the file's entries; %URL% stands for the server. `answer`: 200 to all if null.
  explicit HandlerWorld(const std::string& handlers, Answer answer = nullptr, bool table = true);
  ~HandlerWorld();

  std::unique_ptr<projections::Projector> NewProjector() const;
  // Events `first` to `last` of the aggregate.
  void Make(const std::string& id, int64_t first, int64_t last, const std::string& a = "x");

  // What the server has accepted or not, in the order of arrival: "id/version".
  std::vector<std::string> Called() const;
  // How often each was, and whether each aggregate's came in the order of versions at first.
  std::map<std::string, int> CallsByEvent() const;
  bool InOrder() const;

  testing::HttpTestServer server;
  projections::CodeProjections code;

 private:
  std::string file_;
};

std::string EventOf(const HandlerWorld::Seen& seen);  // "id/version"

}  // namespace lockstep::runner
