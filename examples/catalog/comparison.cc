#include "examples/catalog/comparison.h"

#include <fmt/format.h>

#include "platform/status.h"

namespace lockstep::examples {
namespace {

constexpr size_t kMaxDifferences = 10;

// The same columns on both sides, as text.
constexpr char kSource[] =
    "SELECT video_id, uploader_id, title, description, duration_seconds, published_at, deleted_at,"
    " version FROM catalog.video ORDER BY video_id";
constexpr char kReadModel[] =
    "SELECT video_id, uploader_id, title, description, duration_seconds, published_at, deleted_at,"
    " version FROM catalog_read.video_projection ORDER BY video_id";
constexpr const char* kColumns[] = {"video_id",         "uploader_id",  "title",      "description",
                                    "duration_seconds", "published_at", "deleted_at", "version"};

std::string Difference(const postgres::Result& a, int i, const postgres::Result& b, int j) {
  for (int column = 0; column < a.columns(); ++column) {
    if (a.Optional(i, column) == b.Optional(j, column)) continue;
    return fmt::format("video {}: {} is '{}' in the source and '{}' in the read model",
                       a.Text(i, 0), kColumns[column], a.Optional(i, column).value_or("NULL"),
                       b.Optional(j, column).value_or("NULL"));
  }
  return "";
}

}  // namespace

absl::StatusOr<Comparison> Compare(postgres::Connection& source, postgres::Connection& read_model) {
  ASSIGN_OR_RETURN(const postgres::Result a, source.Execute(kSource));
  ASSIGN_OR_RETURN(const postgres::Result b, read_model.Execute(kReadModel));
  Comparison comparison;
  comparison.rows = a.rows();
  const auto differs = [&](std::string sentence) {
    ++comparison.different;
    if (comparison.differences.size() < kMaxDifferences) {
      comparison.differences.push_back(std::move(sentence));
    }
  };
  int i = 0;
  int j = 0;
  while (i < a.rows() || j < b.rows()) {  // both are in the order of video_id
    const int order = i == a.rows() ? 1 : j == b.rows() ? -1 : a.Text(i, 0).compare(b.Text(j, 0));
    if (order < 0) {
      differs(fmt::format("video {} is missing in the read model", a.Text(i++, 0)));
    } else if (order > 0) {
      differs(fmt::format("video {} is in the read model only", b.Text(j++, 0)));
    } else {
      std::string difference = Difference(a, i++, b, j++);
      if (difference.empty()) {
        ++comparison.equal;
      } else {
        differs(std::move(difference));
      }
    }
  }
  return comparison;
}

}  // namespace lockstep::examples
