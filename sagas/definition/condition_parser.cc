#include <algorithm>
#include <array>
#include <cmath>

#include "platform/status.h"
#include "platform/text.h"
#include "sagas/definition/canonical.h"
#include "sagas/definition/condition.h"

namespace lockstep::sagas {

// Reads a condition by descent: or, and, not, comparison, value.
class ConditionParser {
 public:
  explicit ConditionParser(std::string_view text) : whole_(text), rest_(text) {}

  absl::StatusOr<Condition> Parse() {
    if (whole_.size() > Condition::kMaxBytes) {
      return InvalidArgument("the condition has more than {} bytes; let an earlier step decide",
                             Condition::kMaxBytes);
    }
    if (!ValidUtf8(whole_)) return InvalidArgument("the condition is no UTF-8");
    ASSIGN_OR_RETURN(condition_.root_, Or(0));
    Skip();
    if (!rest_.empty()) {
      return Wrong("and, or, a comparison or the end is wanted, not '{}'", Shown());
    }
    return std::move(condition_);
  }

 private:
  using Kind = Condition::Kind;
  using Index = absl::StatusOr<size_t>;

  Index Or(int depth) {
    ASSIGN_OR_RETURN(size_t left, And(depth));
    while (TakeWord("or")) {
      ASSIGN_OR_RETURN(const size_t right, And(depth));
      left = Add({.kind = Kind::kOr, .left = left, .right = right});
    }
    return left;
  }

  Index And(int depth) {
    ASSIGN_OR_RETURN(size_t left, Not(depth));
    while (TakeWord("and")) {
      ASSIGN_OR_RETURN(const size_t right, Not(depth));
      left = Add({.kind = Kind::kAnd, .left = left, .right = right});
    }
    return left;
  }

  Index Not(int depth) {
    if (depth > Condition::kMaxDepth) {
      return Wrong("more than {} levels of parentheses and 'not'", Condition::kMaxDepth);
    }
    if (TakeWord("not")) {
      ASSIGN_OR_RETURN(const size_t inner, Not(depth + 1));
      return Add({.kind = Kind::kNot, .left = inner});
    }
    Skip();
    if (!Take("(")) return Comparison();
    ASSIGN_OR_RETURN(const size_t inner, Or(depth + 1));
    Skip();
    if (!Take(")")) return Wrong("a ')' is missing");
    Skip();
    if (IsComparison()) {
      return Wrong("a comparison has a path or a value on either side, no parentheses");
    }
    return inner;
  }

  Index Comparison() {
    ASSIGN_OR_RETURN(const size_t left, Value());
    Skip();
    struct Operator {
      std::string_view text;
      Kind kind;
    };
    // The longer ones first.
    static constexpr std::array<Operator, 6> kOperators{{{"==", Kind::kEqual},
                                                         {"!=", Kind::kUnequal},
                                                         {"<=", Kind::kAtMost},
                                                         {">=", Kind::kAtLeast},
                                                         {"<", Kind::kLess},
                                                         {">", Kind::kMore}}};
    for (const Operator& known : kOperators) {
      if (!Take(known.text)) continue;
      ASSIGN_OR_RETURN(const size_t right, Value());
      Skip();
      if (IsComparison()) return Wrong("one comparison after the other; put 'and' between them");
      return Add({.kind = known.kind, .left = left, .right = right});
    }
    if (rest_.starts_with('=')) return Wrong("'=' is no comparison; write ==");
    if (rest_.starts_with("&&")) return Wrong("'&&' is written and");
    if (rest_.starts_with("||")) return Wrong("'||' is written or");
    return left;
  }

  Index Value() {
    Skip();
    if (rest_.starts_with("$.")) {
      auto path = Path::Take(&rest_);
      if (!path.ok()) return Wrong("{}", MessageOf(path.status()));
      return Add({.kind = Kind::kPath, .path = *std::move(path)});
    }
    if (rest_.starts_with('\'')) return Text();
    if (!rest_.empty() &&
        (rest_.front() == '-' || (rest_.front() >= '0' && rest_.front() <= '9'))) {
      return Number();
    }
    if (TakeWord("true")) return Add({.literal = true});
    if (TakeWord("false")) return Add({.literal = false});
    if (TakeWord("null")) return Add({.literal = nullptr});
    if (rest_.empty()) return Wrong("a path or a value is wanted here");
    if (rest_.front() == '"') return Wrong("a text stands in single quotes: 'so'");
    if (rest_.front() == '!') return Wrong("'!' is written not");
    return Wrong("'{}' is neither a path ($.input.…), a number, a 'text', true, false nor null",
                 Shown());
  }

  Index Text() {
    std::string text;
    for (size_t at = 1; at < rest_.size(); ++at) {
      if (rest_[at] == '\'') {
        if (rest_.substr(at + 1, 1) != "'") {
          rest_.remove_prefix(at + 1);
          return Add({.literal = std::move(text)});
        }
        ++at;
      }
      text += rest_[at];
    }
    return Wrong("the text that begins here has no end; a quote in it is written twice");
  }

  // As JSON writes numbers.
  Index Number() {
    const auto end = std::ranges::find_if_not(rest_, [](char c) {
      return (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E';
    });
    const std::string_view digits(rest_.begin(), end);
    const Json number = Json::parse(digits, nullptr, /*allow_exceptions=*/false);
    if (!number.is_number() || (number.is_number_float() && !std::isfinite(number.get<double>()))) {
      return Wrong("'{}' is no number such as 10, -1 or 2.5", Truncate(digits, 40));
    }
    rest_.remove_prefix(digits.size());
    return Add({.literal = Canonical(number)});
  }

  void Skip() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t' ||
                              rest_.front() == '\n' || rest_.front() == '\r')) {
      rest_.remove_prefix(1);
    }
  }

  bool Take(std::string_view token) {
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  static bool WordCharacter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           static_cast<unsigned char>(c) >= 0x80;
  }
  bool TakeWord(std::string_view word) {
    Skip();
    if (!rest_.starts_with(word)) return false;
    if (rest_.size() > word.size() && WordCharacter(rest_[word.size()])) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  bool IsComparison() const {
    return rest_.starts_with('=') || rest_.starts_with("!=") || rest_.starts_with('<') ||
           rest_.starts_with('>');
  }

  // The word or the sign that stands here.
  std::string Shown() const {
    const auto end = std::ranges::find_if_not(rest_, WordCharacter);
    const auto size = static_cast<size_t>(end - rest_.begin());
    return Truncate(rest_.substr(0, std::max<size_t>(size, 1)), 40);
  }

  template <typename... Args>
  absl::Status Wrong(fmt::format_string<Args...> what, Args&&... args) const {
    return InvalidArgument("at character {}: {}", whole_.size() - rest_.size() + 1,
                           fmt::format(what, std::forward<Args>(args)...));
  }

  size_t Add(Condition::Node node) {
    condition_.nodes_.push_back(std::move(node));
    return condition_.nodes_.size() - 1;
  }

  const std::string_view whole_;
  std::string_view rest_;
  Condition condition_;
};

absl::StatusOr<Condition> Condition::Parse(std::string_view text) {
  return ConditionParser(text).Parse();
}

}  // namespace lockstep::sagas
