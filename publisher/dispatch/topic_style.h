#pragma once

#include <string>
#include <vector>

#include "publisher/dispatch/dispatcher.h"

namespace lockstep::publisher {

// <module>.<aggregate>.<event>.vN
bool IsVersionedTopic(const std::string& topic);

// In front of a dispatcher under `topic_style: versioned`: rows whose logical topic breaks the
// style never reach the bus. No retry can mend a name, so it is a permanent fault of the row. Safe
// from any thread, as `next` is.
class VersionedTopicsOnly : public Dispatcher {
 public:
  explicit VersionedTopicsOnly(Dispatcher& next) : next_(next) {}  // outlives it

  void Dispatch(const std::string& table, const std::string& topic, std::vector<RowPtr> rows,
                Done done) override;
  RequestShape Shape(const std::string& topic) const override { return next_.Shape(topic); }
  void SetMaxRequests(const std::string& table, int requests) override {
    next_.SetMaxRequests(table, requests);
  }

 private:
  Dispatcher& next_;
};

}  // namespace lockstep::publisher
