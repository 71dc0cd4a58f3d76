#include "publisher/dispatch/topic_style.h"

#include <regex>
#include <utility>

#include "platform/status.h"
#include "publisher/dispatch/failure.h"

namespace lockstep::publisher {

bool IsVersionedTopic(const std::string& topic) {
  static const std::regex kPattern(R"([a-z0-9-]+\.[a-z0-9-]+\.[a-z0-9-]+\.v[1-9][0-9]*)");
  return std::regex_match(topic, kPattern);
}

void VersionedTopicsOnly::Dispatch(const std::string& table, const std::string& topic,
                                   std::vector<RowPtr> rows, Done done) {
  if (IsVersionedTopic(topic)) {
    next_.Dispatch(table, topic, std::move(rows), std::move(done));
    return;
  }
  const absl::Status refused = InvalidArgument(
      "topic {} is not <module>.<aggregate>.<event>.vN, as topic_style: versioned wants it", topic);
  done(std::vector<DispatchResult>(rows.size(), {refused, "", std::string(kRowRefused)}));
}

}  // namespace lockstep::publisher
