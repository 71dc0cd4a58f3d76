#include "sagas/definition/check.h"

#include <algorithm>
#include <set>
#include <utility>

#include "platform/config/config.h"
#include "platform/duration.h"
#include "platform/http_client/url.h"
#include "platform/status.h"
#include "platform/text.h"
#include "postgres/identifier.h"
#include "sagas/definition/canonical.h"
#include "sagas/definition/condition.h"
#include "sagas/definition/request_template.h"

namespace lockstep::sagas {
namespace {

constexpr int kMostAttempts = 1'000;

bool IsFunctionName(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
}

// As an outbox takes them (docs/publisher.md).
bool IsTopic(std::string_view text) {
  return !text.empty() && text.size() <= 127 && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
  });
}
bool IsEventType(std::string_view text) {
  if (text.size() > 255) return false;
  bool begins = true;  // a part between dots
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    if (begins ? !letter : !letter && !digit && c != '.') return false;
    begins = c == '.';
  }
  return !begins;
}

class Checker {
 public:
  explicit Checker(const Definition& definition) : definition_(definition) {}

  std::vector<Mistake> Find() {
    if (!IsName(definition_.name)) {
      Add("/saga", kNoName, Truncate(definition_.name, 80));
    }
    if (definition_.version < 1) Add("/version", "the version is a whole number from 1");
    if (TooLong(definition_.timeout)) Add("/timeout", "{}", kTooLong);
    if (!definition_.outbox.empty()) {
      CheckText("/outbox", definition_.outbox);
      const auto outbox = postgres::QualifiedName::Parse(definition_.outbox);
      if (!outbox.ok()) Add("/outbox", "{}", MessageOf(outbox.status()));
    }
    if (definition_.steps.empty()) Add("/steps", "there is no step; a saga has at least one");
    if (definition_.steps.size() > kMaxSteps) {
      Add("/steps", "{} steps are more than {}; let one of them start another saga",
          definition_.steps.size(), kMaxSteps);
      return std::move(mistakes_);
    }
    for (size_t i = 0; i < definition_.steps.size(); ++i) CheckStep(i);
    if (mistakes_.empty() && definition_.ToJson().dump().size() > kMaxDefinitionBytes) {
      Add("", "the definition has more than {} KiB; pass less on in its requests",
          kMaxDefinitionBytes >> 10);
    }
    return std::move(mistakes_);
  }

 private:
  static constexpr std::string_view kTooLong = "the longest time is 366d";
  static constexpr char kNoName[] =
      "'{}' is no name; it begins with a to z, goes on with those, digits, _ and -, and has 64 "
      "characters at most";

  static bool TooLong(Millis time) { return time < Millis(0) || time > kLongestTimeout; }

  void CheckStep(size_t index) {
    const Step& step = definition_.steps[index];
    step_ = index;
    const std::string path = fmt::format("/steps/{}", index);
    if (!IsName(step.name)) {
      Add(path + "/name", kNoName, Truncate(step.name, 80));
    }
    for (size_t i = 0; i < index; ++i) {
      if (definition_.steps[i].name == step.name) {
        Add(path + "/name", "there is a step {} already; give this one another name", step.name);
        break;
      }
    }
    if (!step.concurrency_tag.empty() && !IsName(step.concurrency_tag)) {
      Add(path + "/concurrency_tag", "'{}' is no tag; write a short name such as pay",
          Truncate(step.concurrency_tag, 80));
    }
    if (!step.when.empty()) CheckCondition(path + "/when", step.when);
    compensation_ = false;
    CheckAction(path, step.action);
    if (!step.compensate.has_value()) return;
    compensation_ = true;
    CheckAction(path + "/compensate", *step.compensate);
  }

  void CheckCondition(const std::string& path, const std::string& text) {
    CheckText(path, text);
    const auto condition = Condition::Parse(text);
    if (!condition.ok()) {
      Add(path, "{}", MessageOf(condition.status()));
      return;
    }
    compensation_ = false;
    for (const Path& used : condition->paths()) CheckPath(path, used);
  }

  void CheckAction(const std::string& path, const Action& action) {
    CheckTarget(path + "/action", action);
    if (action.kind != ActionKind::kBus) {
      if (action.reply) Add(path + "/reply", "only bus: waits for a reply; leave it out");
      if (!action.event_type.empty()) {
        Add(path + "/event_type", "only bus: has an event type; leave it out");
      }
    } else if (!action.event_type.empty() && !IsEventType(action.event_type)) {
      Add(path + "/event_type",
          "an event type is a name as in protobuf: letters, digits and _, with dots between parts, "
          "255 characters at most");
    }
    const bool call = action.kind == ActionKind::kHttp || action.kind == ActionKind::kFunction;
    if (action.settled_by_key && !call) {
      Add(path + "/settled_by", "only http: and fn: leave a step in doubt; leave it out");
    }
    if (action.kind == ActionKind::kWait && !action.request.is_null()) {
      Add(path + "/request", "wait sends nothing; leave the request out");
    }
    CheckTimes(path, action);
    CheckTemplate(path + "/request", action.request, 0);
  }

  void CheckTarget(const std::string& path, const Action& action) {
    CheckText(path, action.target);
    switch (action.kind) {
      case ActionKind::kSql: {
        const auto name = postgres::QualifiedName::Parse(action.target);
        if (!name.ok()) Add(path, "sql: names a function as schema.function");
        return;
      }
      case ActionKind::kHttp:
        return CheckUrl(path, action.target);
      case ActionKind::kBus:
        if (!IsTopic(action.target)) {
          Add(path, "bus: names a topic: a to z, digits, . and -, 127 characters at most");
        }
        if (definition_.outbox.empty()) {
          Add(path, "bus: needs an outbox; name it above the steps: outbox: schema.table");
        }
        return;
      case ActionKind::kFunction:
        if (!IsFunctionName(action.target)) {
          Add(path, "fn: names a registered function: letters, digits, _, - and ., 64 at most");
        }
        return;
      case ActionKind::kWait:
        return;
    }
  }

  void CheckUrl(const std::string& path, const std::string& url) {
    const auto paths = PathsOfUrl(url);
    if (!paths.ok()) {
      Add(path, "{}", MessageOf(paths.status()));
      return;
    }
    // With something in place of each placeholder.
    std::string sample;
    bool inside = false;
    for (const char c : url) {
      if (c == '{') sample += 'x';
      if (c == '{' || c == '}') {
        inside = c == '{';
      } else if (!inside) {
        sample += c;
      }
    }
    const auto parsed = http::ParseUrl(sample);
    if (!parsed.ok()) {
      Add(path, "{}", MessageOf(parsed.status()));
      return;
    }
    const size_t origin = url.find_first_of("/?", url.find("://") + 3);
    if (url.find('{') < std::min(origin, url.size())) {
      Add(path, "a placeholder stands after the host: whom we call is not for the input to say");
    }
    for (const Path& used : *paths) CheckPath(path, used);
  }

  void CheckTimes(const std::string& path, const Action& action) {
    const bool waits = action.kind == ActionKind::kWait || action.reply;
    if (TooLong(action.timeout)) {
      Add(path + "/timeout", "{}", kTooLong);
    } else if (action.timeout == Millis(0) && !waits) {
      Add(path + "/timeout",
          "a call that may take for ever would hold its worker; give it a time such as 30s");
    }
    const RetryPolicy& retry = action.retry;
    const std::string at = path + "/retry/";
    if (retry.max_attempts < 0 || retry.max_attempts > kMostAttempts) {
      Add(at + "max_attempts", "a number from 1 to {} is wanted, or 0 for no end", kMostAttempts);
    }
    if (retry.base < Millis(1) || TooLong(retry.base)) {
      Add(at + "base", "a time from 1ms to 366d is wanted");
    }
    if (retry.cap < retry.base || TooLong(retry.cap)) {
      Add(at + "cap", "the longest wait is not shorter than base ({}), and 366d at most",
          FormatDuration(retry.base));
    }
    if (!(retry.factor >= 1 && retry.factor <= 100)) {
      Add(at + "factor", "a number from 1 to 100 is wanted");
    }
    if (!(retry.jitter_amount >= 0 && retry.jitter_amount <= 1)) {
      Add(at + "jitter", "a share of the wait is wanted, from 0 to 1");
    }
  }

  void CheckTemplate(const std::string& path, const Json& part, int depth) {
    if (depth > kMaxTemplateDepth) {
      Add(path, "deeper than {} levels; pass on flatter values", kMaxTemplateDepth);
      return;
    }
    if (part.is_object()) {
      for (const auto& item : part.items()) {
        CheckText(path, item.key());
        CheckTemplate(Below(path, item.key()), item.value(), depth + 1);
      }
    } else if (part.is_array()) {
      for (size_t i = 0; i < part.size(); ++i) {
        CheckTemplate(fmt::format("{}/{}", path, i), part[i], depth + 1);
      }
    } else if (part.is_string()) {
      const auto& text = part.get_ref<const std::string&>();
      CheckText(path, text);
      if (!IsPath(text)) return;
      const auto used = Path::Parse(text);
      if (!used.ok()) {
        Add(path, "{}", MessageOf(used.status()));
      } else {
        CheckPath(path, *used);
      }
    } else if (part.is_binary() || part.is_discarded()) {
      Add(path, "a JSON value is wanted");
    }
  }

  void CheckText(const std::string& path, const std::string& text) {
    if (!ValidUtf8(text)) Add(path, "a text that is no UTF-8");
    if (text.find('\0') != std::string::npos) {
      Add(path, "a NUL character, which Postgres can't keep; leave it out");
    }
  }

  // Whether there can be something under a path when this step is run or undone.
  void CheckPath(const std::string& path, const Path& used) {
    static const std::vector<std::string> kRoots = {"input", "steps", "saga"};
    static const std::vector<std::string> kOfSaga = {"id", "tenant", "key", "definition",
                                                     "version"};
    if (std::ranges::find(kRoots, used.root()) == kRoots.end()) {
      Add(path, "{}: there is no $.{}; {}", used.text(), used.root(), Nearest(used.root(), kRoots));
      return;
    }
    const std::string second(used.second());
    if (used.root() == "saga") {
      if (std::ranges::find(kOfSaga, second) == kOfSaga.end()) {
        Add(path, "{}: of the saga there are {}{}", used.text(), fmt::join(kOfSaga, ", "),
            DidYouMean(second, kOfSaga));
      }
      return;
    }
    if (used.root() != "steps") return;
    CheckStepPath(path, used, second);
  }

  void CheckStepPath(const std::string& path, const Path& used, const std::string& second) {
    const auto& steps = definition_.steps;
    const auto named = std::ranges::find(steps, second, &Step::name);
    std::vector<std::string> earlier;
    for (size_t i = 0; i < step_ + (compensation_ ? 1 : 0); ++i) {
      if (!SideBySide(i)) earlier.push_back(steps[i].name);
    }
    if (named == steps.end()) {
      Add(path, "{}: there is no step '{}'{}", used.text(), Truncate(second, 80),
          earlier.empty() ? "; before this one there is none"
          : DidYouMean(second, earlier).empty()
              ? fmt::format("; known here are {}", fmt::join(earlier, ", "))
              : DidYouMean(second, earlier));
      return;
    }
    const auto index = static_cast<size_t>(named - steps.begin());
    if (index == step_ && !compensation_) {
      Add(path, "{}: the step has no result before it is done", used.text());
    } else if (index != step_ && SideBySide(index)) {
      Add(path,
          "{}: step {} runs at the same time, for it has the same concurrency_tag; its result may "
          "not be there yet",
          used.text(), second);
    } else if (index > step_) {
      Add(path, "{}: step {} comes later; put it before this one", used.text(), second);
    }
  }

  // Whether that step may run while this one does: all from one to the other have one tag.
  bool SideBySide(size_t other) const {
    const auto& steps = definition_.steps;
    const std::string& tag = steps[step_].concurrency_tag;
    if (other == step_ || tag.empty()) return false;
    for (size_t i = std::min(other, step_); i <= std::max(other, step_); ++i) {
      if (steps[i].concurrency_tag != tag) return false;
    }
    return true;
  }

  static std::string DidYouMean(const std::string& word, const std::vector<std::string>& known) {
    const std::string nearest = NearestWord(word, known);
    return nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest);
  }
  static std::string Nearest(const std::string& word, const std::vector<std::string>& known) {
    const std::string nearest = NearestWord(word, known);
    return nearest.empty() ? fmt::format("there are {}", fmt::join(known, ", "))
                           : fmt::format("did you mean '{}'?", nearest);
  }

  template <typename... Args>
  void Add(std::string path, fmt::format_string<Args...> what, Args&&... args) {
    mistakes_.push_back(
        {std::move(path), Truncate(fmt::format(what, std::forward<Args>(args)...), 2'048)});
  }

  const Definition& definition_;
  size_t step_ = 0;
  bool compensation_ = false;
  std::vector<Mistake> mistakes_;
};

}  // namespace

std::string Below(const std::string& path, std::string_view key) {
  std::string below = path + '/';
  for (const char c : key) {
    if (c == '~') {
      below += "~0";
    } else if (c == '/') {
      below += "~1";
    } else {
      below += c;
    }
  }
  return below;
}

std::string Sentence(const Mistake& mistake) {
  if (mistake.path.empty()) return mistake.what;
  return fmt::format("{}: {}", mistake.path.substr(1), mistake.what);
}

bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= 64 && text.front() >= 'a' && text.front() <= 'z' &&
         std::ranges::all_of(text, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
         });
}

std::vector<Mistake> FindMistakes(const Definition& definition) {
  return Checker(definition).Find();
}

}  // namespace lockstep::sagas
