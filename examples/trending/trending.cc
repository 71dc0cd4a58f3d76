#include "examples/trending/trending.h"

#include <fmt/format.h>

#include <map>

#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"
#include "postgres/params.h"

namespace lockstep::examples {

bool Trending::Wants(const projections::Event& event) const {
  return event.event_type == "engagement.events.Liked";
}

absl::Status Trending::Write(postgres::Transaction& transaction,
                             std::span<const projections::Event* const> events,
                             const std::string& suffix) const {
  std::map<std::string, std::pair<int64_t, WallTime>> likes;  // in key order, as locks should be
  for (const projections::Event* event : events) {
    // The aggregate is user/video.
    const size_t slash = event->aggregate.id.find('/');
    if (slash == std::string::npos) return InvalidArgument("an aggregate_id is not user/video");
    auto& [count, at] = likes[event->aggregate.id.substr(slash + 1)];
    ++count;
    at = std::max(at, event->occurred_at);
  }
  postgres::Array videos;
  postgres::Array counts;
  postgres::Array times;
  for (const auto& [video, like] : likes) {
    videos.Add(video);
    counts.Add(like.first);
    times.Add(like.second);
  }
  return transaction
      .Execute(fmt::format("INSERT INTO engagement_read.{} AS t (video_id, score, scored_at)\n"
                           "SELECT * FROM unnest($1::text[], $2::bigint[], $3::timestamptz[])\n"
                           "ON CONFLICT (video_id) DO UPDATE SET\n"
                           "  score = excluded.score + t.score *\n"
                           "    0.5 ^ (greatest(0, extract(epoch FROM excluded.scored_at -"
                           " t.scored_at)) / 86400),\n"
                           "  scored_at = greatest(t.scored_at, excluded.scored_at)",
                           postgres::QuoteIdentifier("trending" + suffix)),
               videos, counts, times)
      .status();
}

}  // namespace lockstep::examples
