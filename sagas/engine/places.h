#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace lockstep::sagas {

// One among those that may be under way at a time; the end of its last copy gives it back. Copied,
// because the end of a call comes on a thread of the client's.
using Place = std::shared_ptr<const void>;

// How many of a kind may be under way in this process: steps of a concurrency_tag, calls to a host.
// Safe from any thread; outlives its places.
class Places {
 public:
  // `otherwise`: of a kind without a limit of its own (0 = as many as like). `told`: there is a
  // place again for this saga, which has waited for one.
  Places(int otherwise, std::function<void(const std::string& saga)> told)
      : otherwise_(otherwise), told_(std::move(told)) {}

  void Set(std::map<std::string, int> limits);
  // Null = there is no room; the saga is told when there is. The empty kind has always room.
  Place Take(const std::string& kind, const std::string& saga);

 private:
  void Give(const std::string& kind);

  const int otherwise_;
  const std::function<void(const std::string&)> told_;
  std::mutex mu_;
  std::map<std::string, int> limits_;
  std::map<std::string, int> taken_;
  std::map<std::string, std::deque<std::string>> waiting_;
};

}  // namespace lockstep::sagas
