#include "runner/options/verify_schedule.h"

#include <filesystem>

#include "platform/config/config.h"
#include "platform/config/database_address.h"
#include "platform/status.h"

namespace lockstep::runner {

void Bind(ConfigSection& config, VerifySchedule& schedule) {
  ConfigSection followed = config.Followed();
  followed.Key("every", &schedule.every,
               "the group's tables are compared with their source, all rows once in so long; 0 = "
               "never");
  config.Key("backfills", &schedule.backfills,
             "the files of the backfills that say what the source is");
  BindDatabase(config, &schedule.source, "the source's database, to be read", "source");
  config.Key("deep", &schedule.deep, "compare the columns' values too, not only the versions");
  config.Key("grace", &schedule.grace,
             "how long nothing older must be in hand before a row that differs is looked at again");
  config.Key("rows", &schedule.rows, "rows that are compared at a time, about");
  for (std::string& file : schedule.backfills) {
    if (std::filesystem::path(file).is_absolute() || config.Directory().empty()) continue;
    file = (std::filesystem::path(config.Directory()) / file).string();
  }
}

absl::Status VerifySchedule::Validate(const std::string& group) const {
  const auto wrong = [&](std::string_view key, std::string_view what) {
    return InvalidArgument("group '{}': verify.{} {}", group, key, what);
  };
  if (every < Millis(0)) return wrong("every", "must not be below 0");
  if (rows < 100 || rows > 1'000'000) return wrong("rows", "must be 100 to 1000000");
  if (every > Millis(0) && backfills.empty()) {
    return wrong("backfills",
                 "is empty: name the files of the backfills that say what the source is");
  }
  if (!backfills.empty() && source.empty()) {
    return wrong("source", "is not set: name the source's database, and a role that may only read");
  }
  return absl::OkStatus();
}

}  // namespace lockstep::runner
