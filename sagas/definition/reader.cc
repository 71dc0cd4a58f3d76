#include "sagas/definition/reader.h"

#include <algorithm>
#include <limits>

#include "platform/config/config.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "platform/text.h"
#include "sagas/definition/canonical.h"

namespace lockstep::sagas {
namespace {

const std::vector<std::string> kSagaKeys = {"saga",       "version", "timeout",
                                            "on_failure", "outbox",  "steps"};
const std::vector<std::string> kActionKeys = {"action", "request",    "idempotent", "settled_by",
                                              "reply",  "event_type", "timeout",    "retry"};
const std::vector<std::string> kOfSteps = {"name", "compensate", "when", "concurrency_tag"};
const std::vector<std::string> kRetryKeys = {"max_attempts", "base", "factor", "jitter", "cap"};

class Reader {
 public:
  DefinitionReading Read(const Json& root) {
    Definition definition;
    if (!CheckMap("", root, "definition", kSagaKeys)) return Done(std::move(definition));
    const auto name = Text("", root, "saga");
    if (name.has_value()) {
      definition.name = *name;
    } else {
      Missing("", root, "saga", "name the saga");
    }
    const auto version = Whole("", root, "version");
    if (version.has_value()) {
      definition.version = *version;
    } else {
      Missing("", root, "version", "begin with version: 1, and raise it with every change");
    }
    definition.timeout = Time("", root, "timeout").value_or(Millis(0));
    if (const auto text = Text("", root, "on_failure")) {
      if (*text == "stop") {
        definition.on_failure = OnFailure::kStop;
      } else if (*text != "compensate") {
        Add("/on_failure", "'{}' is neither compensate nor stop", Truncate(*text, 80));
      }
    }
    definition.outbox = Text("", root, "outbox").value_or("");
    ReadSteps(root, &definition);
    return Done(std::move(definition));
  }

 private:
  // With what the whole shows, except where a part could not be read.
  DefinitionReading Done(Definition definition) {
    for (Mistake& found : FindMistakes(definition)) {
      const bool known = std::ranges::any_of(unread_, [&](const std::string& path) {
        return found.path == path || found.path.starts_with(path + "/");
      });
      if (!known) mistakes_.push_back(std::move(found));
    }
    return {std::move(definition), std::move(mistakes_)};
  }

  void ReadSteps(const Json& root, Definition* definition) {
    const Json* steps = Member(root, "steps");
    if (steps == nullptr) {
      Missing("", root, "steps", "list at least one step");
      return;
    }
    if (!steps->is_array()) {
      Add("/steps", "steps: a list of steps is wanted here, each with a name and an action");
      return;
    }
    for (size_t i = 0; i < steps->size(); ++i) {
      definition->steps.push_back(ReadStep(fmt::format("/steps/{}", i), (*steps)[i]));
    }
  }

  Step ReadStep(const std::string& path, const Json& json) {
    Step step;
    static const std::vector<std::string> kKeys = [] {
      std::vector<std::string> keys = kOfSteps;
      keys.insert(keys.end(), kActionKeys.begin(), kActionKeys.end());
      return keys;
    }();
    if (!CheckMap(path, json, "step", kKeys)) return step;
    if (auto name = Text(path, json, "name")) {
      step.name = *std::move(name);
    } else {
      Missing(path, json, "name", "give the step a short name, such as reserve");
    }
    step.action = ReadAction(path, json);
    if (const Json* when = Member(json, "when"); when != nullptr && when->is_boolean()) {
      step.when = when->get<bool>() ? "true" : "false";
    } else {
      step.when = Text(path, json, "when").value_or("");
    }
    step.concurrency_tag = Text(path, json, "concurrency_tag").value_or("");
    const Json* compensate = Member(json, "compensate");
    if (compensate == nullptr) return step;
    if (compensate->is_string()) {
      step.compensate = Action();
      ReadTarget(path + "/compensate/action", compensate->get<std::string>(), &*step.compensate);
      SetDefaults(&*step.compensate, /*timeout=*/false);
    } else if (CheckMap(path + "/compensate", *compensate, "compensate", kActionKeys)) {
      step.compensate = ReadAction(path + "/compensate", *compensate);
    }
    return step;
  }

  Action ReadAction(const std::string& path, const Json& json) {
    Action action;
    const auto text = Text(path, json, "action");
    if (text.has_value()) {
      ReadTarget(path + "/action", *text, &action);
    } else {
      Missing(path, json, "action",
              "write sql:schema.function, https://…, bus:topic, fn:name or wait");
      unread_.push_back(path);  // what else is right depends on it
    }
    if (const Json* request = Member(json, "request")) action.request = *request;
    action.idempotent = Flag(path, json, "idempotent").value_or(false);
    action.reply = Flag(path, json, "reply").value_or(false);
    action.event_type = Text(path, json, "event_type").value_or("");
    if (const auto settled = Text(path, json, "settled_by")) {
      action.settled_by_key = *settled == "idempotency_key";
      if (!action.settled_by_key) {
        Add(path + "/settled_by", "'{}' is not known; write idempotency_key, or leave it out",
            Truncate(*settled, 80));
      }
    }
    const auto timeout = Time(path, json, "timeout");
    if (timeout.has_value()) action.timeout = *timeout;
    const bool call = action.kind == ActionKind::kHttp || action.kind == ActionKind::kFunction;
    if (text.has_value() && !call && Member(json, "idempotent") != nullptr) {
      Add(path + "/idempotent", "{}: is done exactly once whatever this says; leave it out",
          KindName(action.kind));
    }
    ReadRetry(path, json, &action);
    SetDefaults(&action, timeout.has_value());
    return action;
  }

  static void SetDefaults(Action* action, bool has_timeout) {
    const bool call = action->kind == ActionKind::kHttp || action->kind == ActionKind::kFunction;
    if (!call) action->idempotent = true;
    const bool waits = action->kind == ActionKind::kWait || action->reply;
    if (waits && !has_timeout) action->timeout = Millis(0);
  }

  void ReadRetry(const std::string& path, const Json& json, Action* action) {
    const Json* retry = Member(json, "retry");
    if (retry == nullptr) return;
    const std::string at = path + "/retry";
    if (!CheckMap(at, *retry, "retry", kRetryKeys)) return;
    if (action->kind == ActionKind::kWait) {
      Add(at, "wait is not tried again; leave retry out");
      return;
    }
    RetryPolicy& policy = action->retry;
    policy.max_attempts = Whole(at, *retry, "max_attempts").value_or(policy.max_attempts);
    policy.base = Time(at, *retry, "base").value_or(policy.base);
    policy.factor = Number(at, *retry, "factor").value_or(policy.factor);
    policy.jitter_amount = Number(at, *retry, "jitter").value_or(policy.jitter_amount);
    const auto cap = Time(at, *retry, "cap");
    // A base beyond the default cap is a wish for longer waits.
    policy.cap = cap.value_or(std::max(policy.cap, policy.base));
  }

  void ReadTarget(const std::string& path, const std::string& text, Action* action) {
    const auto begins = [&](std::string_view word) { return text.starts_with(word); };
    if (text == "wait") {
      action->kind = ActionKind::kWait;
    } else if (begins("http://") || begins("https://")) {
      action->kind = ActionKind::kHttp;
      action->target = text;
    } else if (begins("sql:")) {
      action->kind = ActionKind::kSql;
      action->target = Trim(std::string_view(text).substr(4));
    } else if (begins("bus:")) {
      action->kind = ActionKind::kBus;
      action->target = Trim(std::string_view(text).substr(4));
    } else if (begins("fn:")) {
      action->kind = ActionKind::kFunction;
      action->target = Trim(std::string_view(text).substr(3));
    } else {
      static const std::vector<std::string> kWords = {"wait"};
      static const std::vector<std::string> kKinds = {"sql", "http", "https", "bus", "fn"};
      const size_t colon = text.find(':');
      const std::string kind = colon == std::string::npos
                                   ? NearestWord(text, kWords)
                                   : NearestWord(text.substr(0, colon), kKinds);
      unread_.push_back(path.substr(0, path.rfind('/')));
      Add(path,
          "'{}' is no action; write sql:schema.function, https://…, bus:topic, fn:name or wait{}",
          Truncate(text, 80), kind.empty() ? "" : fmt::format(" (did you mean '{}'?)", kind));
    }
  }

  // Null is as good as nothing.
  static const Json* Member(const Json& map, const std::string& key) {
    if (!map.is_object()) return nullptr;
    const auto found = map.find(key);
    return found == map.end() || found->is_null() ? nullptr : &*found;
  }

  bool CheckMap(const std::string& path, const Json& json, std::string_view what,
                const std::vector<std::string>& keys) {
    if (!json.is_object()) {
      Add(path, "{}: a map of keys is wanted here", what);
      return false;
    }
    for (const auto& item : json.items()) {
      if (std::ranges::find(keys, item.key()) != keys.end()) continue;
      const std::string nearest = NearestWord(item.key(), keys);
      Add(Below(path, item.key()), "{}: unknown key '{}'; {}", what, Truncate(item.key(), 80),
          nearest.empty() ? fmt::format("known are {}", fmt::join(keys, ", "))
                          : fmt::format("did you mean '{}'?", nearest));
      mistakes_.back().at_key = true;
    }
    return true;
  }

  std::optional<std::string> Text(const std::string& path, const Json& map, const char* key) {
    const Json* json = Member(map, key);
    if (json == nullptr) return std::nullopt;
    if (json->is_string()) return json->get<std::string>();
    Add(path + "/" + key, "{}: a text is wanted here{}", key,
        json->is_structured() ? "" : "; put it in quotes");
    return std::nullopt;
  }

  std::optional<bool> Flag(const std::string& path, const Json& map, const char* key) {
    const Json* json = Member(map, key);
    if (json == nullptr) return std::nullopt;
    if (json->is_boolean()) return json->get<bool>();
    Add(path + "/" + key, "{}: true or false is wanted here", key);
    return std::nullopt;
  }

  std::optional<int> Whole(const std::string& path, const Json& map, const char* key) {
    const Json* json = Member(map, key);
    if (json == nullptr) return std::nullopt;
    const Json number = Canonical(*json);
    if (number.is_number_integer() && FitsInt(number)) return number.get<int>();
    Add(path + "/" + key, "{}: a whole number is wanted here", key);
    return std::nullopt;
  }
  static bool FitsInt(const Json& number) {
    constexpr auto kMost = std::numeric_limits<int>::max();
    if (number.is_number_unsigned()) return number.get<uint64_t>() <= uint64_t{kMost};
    return number.get<int64_t>() >= std::numeric_limits<int>::min();
  }

  std::optional<double> Number(const std::string& path, const Json& map, const char* key) {
    const Json* json = Member(map, key);
    if (json == nullptr) return std::nullopt;
    if (json->is_number()) return json->get<double>();
    Add(path + "/" + key, "{}: a number is wanted here", key);
    return std::nullopt;
  }

  std::optional<Millis> Time(const std::string& path, const Json& map, const char* key) {
    const Json* json = Member(map, key);
    if (json == nullptr) return std::nullopt;
    if (json->is_number() && *json == 0) return Millis(0);
    if (json->is_string()) {
      const auto time = ParseDuration(json->get_ref<const std::string&>());
      if (time.ok()) return *time;
    }
    Add(path + "/" + key, "{}: a time such as 30s, 5m or 24h is wanted here", key);
    return std::nullopt;
  }

  void Missing(const std::string& path, const Json& map, const char* key, std::string_view cure) {
    if (Member(map, key) != nullptr) return;  // it is there, and has been complained of
    mistakes_.push_back({path, fmt::format("'{}' is missing; {}", key, cure)});
    unread_.push_back(path + "/" + key);
  }

  template <typename... Args>
  void Add(std::string path, fmt::format_string<Args...> what, Args&&... args) {
    unread_.push_back(path);
    mistakes_.push_back({std::move(path), fmt::format(what, std::forward<Args>(args)...)});
  }

  std::vector<Mistake> mistakes_;
  std::vector<std::string> unread_;
};

}  // namespace

DefinitionReading ReadDefinition(const Json& json) { return Reader().Read(json); }

}  // namespace lockstep::sagas
