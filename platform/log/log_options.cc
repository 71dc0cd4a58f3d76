#include "platform/config/config.h"
#include "platform/log/log.h"

namespace lockstep::log {

void Bind(ConfigSection& config, Options& options) {
  config.Followed().Choice("level", &options.level,
                           {{"debug", Level::kDebug},
                            {"info", Level::kInfo},
                            {"warning", Level::kWarning},
                            {"error", Level::kError}},
                           "the least level that is written");
  config.Choice("format", &options.json, {{"text", false}, {"json", true}}, "form of a line");
  config.Key("repeat_burst", &options.repeats.burst,
             "lines of one kind that are written per interval, the rest is counted; 0 = all");
  config.Key("repeat_interval", &options.repeats.interval, "how long such an interval is");
}

}  // namespace lockstep::log
