#include "emulator/core/filter.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>
#include <vector>

#include "platform/status.h"

namespace lockstep::emulator {

using google::pubsub::v1::PubsubMessage;

// Recursive descent over the text of a filter. The first mistake ends it.
class FilterParser {
 public:
  using Predicate = Filter::Predicate;

  explicit FilterParser(std::string_view text) : text_(text) {}

  absl::StatusOr<Predicate> Parse() {
    ASSIGN_OR_RETURN(Predicate root, Expression(0));
    SkipSpace();
    if (at_ != text_.size()) return Mistake("nothing more is expected here");
    return root;
  }

 private:
  // Parentheses can nest no deeper: 256 bytes can't hold more anyway.
  static constexpr int kMaxDepth = 128;

  absl::StatusOr<Predicate> Expression(int depth) {
    if (depth > kMaxDepth) return Mistake("too deeply nested");
    ASSIGN_OR_RETURN(Predicate first, Term(depth));
    const bool is_and = PeekWord("AND");
    if (!is_and && !PeekWord("OR")) return first;
    std::vector<Predicate> terms = {std::move(first)};
    while (TakeWord(is_and ? "AND" : "OR")) {
      ASSIGN_OR_RETURN(Predicate next, Term(depth));
      terms.push_back(std::move(next));
    }
    if (PeekWord("AND") || PeekWord("OR")) {
      return Mistake("AND and OR can't be mixed without parentheses");
    }
    return [is_and, terms = std::move(terms)](const PubsubMessage& message) {
      const auto holds = [&message](const Predicate& term) { return term(message); };
      return is_and ? std::all_of(terms.begin(), terms.end(), holds)
                    : std::any_of(terms.begin(), terms.end(), holds);
    };
  }

  absl::StatusOr<Predicate> Term(int depth) {
    const bool negated = TakeWord("NOT") || Take('-');
    ASSIGN_OR_RETURN(Predicate inner, Simple(depth));
    return negated ? std::not_fn(std::move(inner)) : std::move(inner);
  }

  absl::StatusOr<Predicate> Simple(int depth) {
    if (Take('(')) {
      ASSIGN_OR_RETURN(Predicate inner, Expression(depth + 1));
      if (!Take(')')) return Mistake("')' is missing");
      return inner;
    }
    if (TakeWord("hasPrefix")) return Prefix();
    if (!TakeWord("attributes")) return Mistake("'attributes' or 'hasPrefix' is expected");
    if (Take(':')) {
      ASSIGN_OR_RETURN(std::string name, Name());
      return Attribute(std::move(name), [](const std::string&) { return true; });
    }
    if (!Take('.')) return Mistake("':' or '.' is expected");
    return Comparison();
  }

  absl::StatusOr<Predicate> Comparison() {
    ASSIGN_OR_RETURN(std::string name, Name());
    const bool differs = Take('!');
    if (!Take('=')) return Mistake("'=' or '!=' is expected");
    ASSIGN_OR_RETURN(std::string value, Quoted());
    Predicate equals = Attribute(
        std::move(name), [value = std::move(value)](const std::string& is) { return is == value; });
    return differs ? std::not_fn(std::move(equals)) : std::move(equals);
  }

  absl::StatusOr<Predicate> Prefix() {
    if (!Take('(')) return Mistake("'(' is expected");
    if (!TakeWord("attributes") || !Take('.')) return Mistake("'attributes.' is expected");
    ASSIGN_OR_RETURN(std::string name, Name());
    if (!Take(',')) return Mistake("',' is expected");
    ASSIGN_OR_RETURN(std::string value, Quoted());
    if (!Take(')')) return Mistake("')' is missing");
    return Attribute(std::move(name), [value = std::move(value)](const std::string& is) {
      return is.starts_with(value);
    });
  }

  // The attribute is there and its value does.
  template <typename Check>
  static Predicate Attribute(std::string name, Check check) {
    return [name = std::move(name), check = std::move(check)](const PubsubMessage& message) {
      const auto attribute = message.attributes().find(name);
      return attribute != message.attributes().end() && check(attribute->second);
    };
  }

  // A bare word, or a quoted one that may hold anything.
  absl::StatusOr<std::string> Name() {
    SkipSpace();
    if (at_ < text_.size() && text_[at_] == '"') return Quoted();
    const size_t begin = at_;
    while (at_ < text_.size() && IsWordCharacter(text_[at_])) ++at_;
    if (at_ == begin) return Mistake("the name of an attribute is expected");
    return std::string(text_.substr(begin, at_ - begin));
  }

  absl::StatusOr<std::string> Quoted() {
    if (!Take('"')) return Mistake("a value in double quotes is expected");
    std::string value;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\') {
        if (++at_ == text_.size()) break;
        RETURN_IF_ERROR(Escape(&value));
      } else {
        value += text_[at_++];
      }
    }
    if (at_ == text_.size()) return Mistake("the closing quote is missing");
    ++at_;
    return value;
  }

  absl::Status Escape(std::string* value) {
    constexpr std::string_view kWritten = "ntr\"\\'";
    constexpr std::string_view kMeant = "\n\t\r\"\\'";
    if (text_[at_] == 'u') {
      ++at_;
      return Unicode(value);
    }
    const size_t which = kWritten.find(text_[at_]);
    if (which == std::string_view::npos) return Mistake("this escape is not known");
    *value += kMeant[which];
    ++at_;
    return absl::OkStatus();
  }

  // \uXXXX, written as UTF-8.
  absl::Status Unicode(std::string* value) {
    const std::string_view digits = text_.substr(at_, 4);
    const size_t good = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
    at_ += good;
    if (good < 4) return Mistake("four hex digits are expected");
    uint32_t point = 0;
    std::from_chars(digits.begin(), digits.end(), point, 16);
    if (point >= 0xD800 && point < 0xE000) return Mistake("half a character");
    if (point < 0x80) {
      *value += static_cast<char>(point);
      return absl::OkStatus();
    }
    if (point < 0x800) {
      *value += static_cast<char>(0xC0 | point >> 6);
    } else {
      *value += static_cast<char>(0xE0 | point >> 12);
      *value += static_cast<char>(0x80 | (point >> 6 & 0x3F));
    }
    *value += static_cast<char>(0x80 | (point & 0x3F));
    return absl::OkStatus();
  }

  static bool IsWordCharacter(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  }

  void SkipSpace() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }

  bool Take(char c) {
    SkipSpace();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool PeekWord(std::string_view word) {
    SkipSpace();
    if (text_.substr(at_, word.size()) != word) return false;
    const size_t end = at_ + word.size();
    return end == text_.size() || !IsWordCharacter(text_[end]);
  }

  bool TakeWord(std::string_view word) {
    if (!PeekWord(word)) return false;
    at_ += word.size();
    return true;
  }

  absl::Status Mistake(std::string_view what) const {
    return InvalidArgument("Invalid filter: {} (at character {} of: {})", what, at_ + 1, text_);
  }

  std::string_view text_;
  size_t at_ = 0;
};

absl::StatusOr<Filter> Filter::Parse(std::string_view text) {
  if (text.size() > kMaxBytes) {
    return InvalidArgument("Invalid filter: it has {} bytes, {} are allowed", text.size(),
                           kMaxBytes);
  }
  ASSIGN_OR_RETURN(Predicate matches, FilterParser(text).Parse());
  return Filter(std::move(matches));
}

}  // namespace lockstep::emulator
