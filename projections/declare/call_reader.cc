#include "projections/declare/call_reader.h"

#include <algorithm>
#include <set>
#include <string>

#include "platform/config/config.h"
#include "platform/duration.h"
#include "platform/http_client/url.h"
#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::projections {
namespace {

constexpr int kMaxConcurrency = 1024;
// The group's transaction is open meanwhile.
constexpr Millis kMaxTimeout{30'000};

const std::vector<std::string> kKeys = {
    "name",    "call",        "events", "on_gap",      "replay",  "snapshots",    "tables",
    "timeout", "concurrency", "format", "secret_file", "ca_file", "headers_file", "allow_private"};
const std::vector<std::string> kOfEndpoints = {
    "timeout", "concurrency", "format", "secret_file", "ca_file", "headers_file", "allow_private"};

class CallReader {
 public:
  CallReader(YamlFile& file, const GroupScope& group, const YAML::Node& node, GroupPlan* plan)
      : file_(file), group_(group), node_(node), plan_(*plan) {}

  void Read() {
    if (!file_.CheckMap(node_, "handler", kKeys)) return;
    table_.projection = file_.Required(node_, "name", "give the handler a name");
    table_.place = file_.Place(node_);
    CheckName();
    ReadSettings();
    const YAML::Node events = node_["events"];
    const bool some = events.IsDefined() && (events.IsMap() || events.IsSequence());
    if (!some || events.size() == 0) {
      file_.Error(events.IsDefined() ? events : node_,
                  "'events' is missing; name the event types, as a list or as a map with a call "
                  "each");
      return;
    }
    ProjectionScope scope{file_, group_, table_, YAML::Node(YAML::NodeType::Undefined),
                          ReadOnGap(file_, node_)};
    scope.add_call = [this](const YAML::Node& at, const std::string& target) {
      return AddCall(at, target);
    };
    scope.call = file_.Text(node_, "call").value_or("");
    if (events.IsSequence()) {
      std::set<std::string> named;
      for (const YAML::Node& type : file_.Scalars(events, "events")) {
        if (named.insert(type.Scalar()).second) {
          ReadEvent(scope, type, type);
        } else {
          file_.Error(type, "event type {} is named twice", type.Scalar());
        }
      }
    } else {
      file_.CheckMap(events, "events", {});
      for (const auto& event : events) ReadEvent(scope, event.first, event.second);
    }
    CheckKeysFit();
  }

 private:
  void CheckName() {
    for (const Call& other : plan_.mappings.calls) {
      if (other.handler == table_.projection) return Taken();
    }
    for (const Table& other : plan_.tables) {
      if (other.projection == table_.projection) return Taken();
    }
  }
  void Taken() {
    file_.Error(node_["name"], "there is a projection or handler {} already; give this one another",
                table_.projection);
  }

  void ReadSettings() {
    replay_ = file_.Either(node_, "replay", "call", "skip");
    settings_.cloudevents = file_.Either(node_, "format", "cloudevents", "plain").value_or(false);
    settings_.allow_private = file_.Flag(node_, "allow_private");
    if (const auto text = file_.Text(node_, "snapshots")) {
      if (*text == "call") {
        settings_.snapshots = OnSnapshot::kCall;
      } else if (*text == "ignore") {
        settings_.snapshots = OnSnapshot::kIgnore;
      } else if (*text != "refuse") {
        file_.Error(node_["snapshots"], "snapshots: '{}' is none of refuse, ignore, call", *text);
      }
    }
    if (const auto text = file_.Text(node_, "timeout")) {
      const auto parsed = ParseDuration(*text);
      if (parsed.ok() && *parsed > Millis(0) && *parsed <= kMaxTimeout) {
        settings_.timeout = *parsed;
      } else {
        file_.Error(node_["timeout"], "timeout: '{}' is no time such as 2s, of {} at most", *text,
                    FormatDuration(kMaxTimeout));
      }
    }
    if (const auto text = file_.Text(node_, "concurrency")) {
      if (!ParseWhole(*text, &settings_.concurrency) || settings_.concurrency < 1 ||
          settings_.concurrency > kMaxConcurrency) {
        file_.Error(node_["concurrency"], "concurrency: '{}' is no number from 1 to {}", *text,
                    kMaxConcurrency);
      }
    }
    const auto path = [&](const char* key) {
      const auto text = file_.Text(node_, key);
      return text ? file_.Resolve(*text) : std::string();
    };
    settings_.secret_file = path("secret_file");
    settings_.ca_file = path("ca_file");
    settings_.headers_file = path("headers_file");
    for (const YAML::Node& item : file_.Scalars(node_["tables"], "tables")) {
      const auto parsed = postgres::QualifiedName::Parse(item.Scalar());
      if (!parsed.ok()) {
        file_.Error(item, "{}", MessageOf(parsed.status()));
        continue;
      }
      settings_.tables.push_back(parsed->ToString());
    }
  }

  void ReadEvent(ProjectionScope& scope, const YAML::Node& type, const YAML::Node& node) {
    EventMapping& mapping = plan_.mappings.events[type.Scalar()];
    mapping.envelope = group_.envelope;
    Route route;
    if (node.IsSequence()) {
      for (const auto& item : node) ReadHandler(scope, type, item, &mapping, &route);
    } else {
      ReadHandler(scope, type, node, &mapping, &route);
    }
    mapping.routes.push_back(std::move(route));
  }

  // The same target within one entry is one call, with all its events.
  std::optional<uint32_t> AddCall(const YAML::Node& at, const std::string& target) {
    Call call = settings_;
    call.handler = table_.projection;
    call.place = file_.Place(at);
    if (target.starts_with("http://") || target.starts_with("https://")) {
      if (const auto url = http::ParseUrl(target); !url.ok()) {
        file_.Error(at, "call: {}", MessageOf(url.status()));
      }
      call.url = target;
      http_ = true;
    } else {
      auto name = postgres::QualifiedName::Parse(target);
      if (!name.ok() || target.find(':') != std::string::npos) {
        file_.Error(at,
                    "call: '{}' is neither a function as schema.name nor an address that begins "
                    "with https:// or http://",
                    target);
        return std::nullopt;
      }
      call.function = *std::move(name);
      function_ = true;
    }
    // What happens outside can't be undone, nor made again without harm.
    call.replays = replay_.value_or(!call.is_http());
    auto& calls = plan_.mappings.calls;
    for (uint32_t i = 0; i < calls.size(); ++i) {
      if (calls[i].handler == call.handler && calls[i].url == call.url &&
          calls[i].function == call.function) {
        return i;
      }
    }
    calls.push_back(std::move(call));
    return static_cast<uint32_t>(calls.size() - 1);
  }

  void CheckKeysFit() {
    for (const std::string& key : kOfEndpoints) {
      if (function_ && !http_ && node_[key].IsDefined()) {
        file_.Error(node_[key], "'{}' belongs to a handler that calls an address; leave it out",
                    key);
      }
    }
    if (http_ && !function_ && node_["tables"].IsDefined()) {
      file_.Error(node_["tables"],
                  "'tables' are those that a function writes; an endpoint has its own. Leave it "
                  "out");
    }
  }

  YamlFile& file_;
  const GroupScope& group_;
  const YAML::Node& node_;
  GroupPlan& plan_;
  Table table_;  // stands for none: its name alone is used
  Call settings_;
  std::optional<bool> replay_;
  bool http_ = false;
  bool function_ = false;
};

}  // namespace

void ReadCalls(YamlFile& file, const GroupScope& group, const YAML::Node& node, GroupPlan* plan) {
  CallReader(file, group, node, plan).Read();
}

}  // namespace lockstep::projections
