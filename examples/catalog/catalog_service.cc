#include "examples/catalog/catalog_service.h"

#include <fmt/format.h>
#include <google/protobuf/util/time_util.h>

#include <utility>

#include "platform/status.h"
#include "video/events/video_events.pb.h"

namespace lockstep::examples {
namespace {

using postgres::Params;

constexpr postgres::Statement kInsert{
    "video_insert",
    "INSERT INTO catalog.video (video_id, uploader_id, title, description, duration_seconds,"
    " published_at, version) VALUES ($1, $2, $3, $4, $5, $6, 1)"};
constexpr postgres::Statement kUpdate{
    "video_update",
    "UPDATE catalog.video SET version = $2, title = coalesce($3, title),"
    " duration_seconds = coalesce($4, duration_seconds) WHERE video_id = $1"};
constexpr postgres::Statement kDelete{
    "video_delete", "UPDATE catalog.video SET version = $2, deleted_at = $3 WHERE video_id = $1"};
constexpr postgres::Statement kEnqueue{
    "video_enqueue",
    "SELECT lockstep.enqueue(outbox => 'catalog.video_outbox', topic => 'catalog.video.changed.v1',"
    " aggregate_type => 'video', aggregate_id => $1, event_type => $2, version => $3,"
    " payload => $4::bytea)"};

constexpr const char* kSubjects[] = {"Sourdough", "Kayaking", "Postgres", "Bonsai",    "Chess",
                                     "Welding",   "Origami",  "Sailing",  "Typography"};
constexpr const char* kForms[] = {"for beginners", "in one hour",  "without fear",
                                  "at midnight",   "the hard way", "explained"};

// Microseconds, as Postgres stores them, so that both sides can be equal.
WallTime Now() {
  return std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
}

google::protobuf::Timestamp ToProto(WallTime time) {
  return google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(
      std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count());
}

}  // namespace

std::string CatalogService::Uuid() {
  const uint64_t high = random_();
  const uint64_t low = random_();
  return fmt::format("{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}", high >> 32, high >> 16 & 0xffff,
                     high & 0xfff, (low >> 48 & 0x3fff) | 0x8000, low & 0xffff'ffff'ffff);
}

size_t CatalogService::Pick() { return random_() % videos_.size(); }

absl::Status CatalogService::CreateVideo() {
  Video video{Uuid(), 1};
  const WallTime now = Now();
  video::events::VideoCreated event;
  event.set_video_id(video.id);
  event.set_uploader_id(fmt::format("user-{}", random_() % 50));
  event.set_title(fmt::format("{} {}", kSubjects[random_() % std::size(kSubjects)],
                              kForms[random_() % std::size(kForms)]));
  event.set_description(fmt::format("{}, part {}", event.title(), random_() % 9 + 1));
  event.set_duration_seconds(static_cast<int64_t>(random_() % 7200 + 30));
  event.set_version(1);
  *event.mutable_published_at() = ToProto(now);
  *event.mutable_occurred_at() = ToProto(now);

  RETURN_IF_ERROR(Write(kInsert,
                        Params(video.id, event.uploader_id(), event.title(), event.description(),
                               event.duration_seconds(), now),
                        video, event));
  videos_.push_back(std::move(video));
  return absl::OkStatus();
}

absl::Status CatalogService::UpdateVideo() {
  if (videos_.empty()) return CreateVideo();
  Video& video = videos_[Pick()];
  const Video next{video.id, video.version + 1};
  video::events::VideoUpdated event;
  event.set_video_id(next.id);
  event.set_version(next.version);
  *event.mutable_occurred_at() = ToProto(Now());
  // Only what changed is in the event: the read model keeps the rest.
  Params params(next.id, next.version);
  if (random_() % 2 == 0) {
    event.set_title(
        fmt::format("{} (take {})", kSubjects[random_() % std::size(kSubjects)], next.version));
    params.Add(event.title()).Add(nullptr);
  } else {
    event.set_duration_seconds(static_cast<int64_t>(random_() % 7200 + 30));
    params.Add(nullptr).Add(event.duration_seconds());
  }
  RETURN_IF_ERROR(Write(kUpdate, params, next, event));
  video.version = next.version;
  return absl::OkStatus();
}

absl::Status CatalogService::DeleteVideo() {
  if (videos_.empty()) return CreateVideo();
  const size_t index = Pick();
  const Video next{videos_[index].id, videos_[index].version + 1};
  const WallTime now = Now();
  video::events::VideoDeleted event;
  event.set_video_id(next.id);
  event.set_version(next.version);
  event.set_reason("withdrawn by its uploader");
  *event.mutable_deleted_at() = ToProto(now);
  *event.mutable_occurred_at() = ToProto(now);
  RETURN_IF_ERROR(Write(kDelete, Params(next.id, next.version, now), next, event));
  videos_.erase(videos_.begin() + static_cast<std::ptrdiff_t>(index));
  return absl::OkStatus();
}

absl::Status CatalogService::Write(const postgres::Statement& change, const Params& params,
                                   const Video& video, const google::protobuf::Message& event) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection_.Begin());
  RETURN_IF_ERROR(transaction.Run(change, params));
  const std::string payload = event.SerializeAsString();
  RETURN_IF_ERROR(transaction.Run(kEnqueue, video.id, std::string(event.GetTypeName()),
                                  video.version, postgres::Bytea{payload}));
  return transaction.Commit();
}

}  // namespace lockstep::examples
