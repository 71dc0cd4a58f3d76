#include <cctype>
#include <utility>

#include "emulator/core/filter.h"
#include "platform/status.h"

namespace lockstep::emulator {

// Recursive descent over the text of a filter. The first mistake ends it.
class FilterParser {
 public:
  using Node = Filter::Node;
  using Kind = Filter::Kind;

  explicit FilterParser(std::string_view text) : text_(text) {}

  absl::StatusOr<Node> Parse() {
    ASSIGN_OR_RETURN(Node root, Expression(0));
    if (!AtEnd()) return Mistake("nothing more is expected here");
    return root;
  }

 private:
  // Parentheses can nest no deeper: 256 bytes can't hold more anyway.
  static constexpr int kMaxDepth = 128;

  absl::StatusOr<Node> Expression(int depth) {
    if (depth > kMaxDepth) return Mistake("too deeply nested");
    ASSIGN_OR_RETURN(Node first, Term(depth));
    const bool is_and = PeekWord("AND");
    if (!is_and && !PeekWord("OR")) return first;
    const std::string_view joint = is_and ? "AND" : "OR";
    Node all{is_and ? Kind::kAnd : Kind::kOr, {}, {}, {}};
    all.children.push_back(std::move(first));
    while (TakeWord(joint)) {
      ASSIGN_OR_RETURN(Node next, Term(depth));
      all.children.push_back(std::move(next));
    }
    if (PeekWord("AND") || PeekWord("OR")) {
      return Mistake("AND and OR can't be mixed without parentheses");
    }
    return all;
  }

  absl::StatusOr<Node> Term(int depth) {
    if (TakeWord("NOT") || Take('-')) {
      ASSIGN_OR_RETURN(Node inner, Simple(depth));
      Node node{Kind::kNot, {}, {}, {}};
      node.children.push_back(std::move(inner));
      return node;
    }
    return Simple(depth);
  }

  absl::StatusOr<Node> Simple(int depth) {
    if (Take('(')) {
      ASSIGN_OR_RETURN(Node inner, Expression(depth + 1));
      if (!Take(')')) return Mistake("')' is missing");
      return inner;
    }
    if (TakeWord("hasPrefix")) return Prefix();
    if (!TakeWord("attributes")) return Mistake("'attributes' or 'hasPrefix' is expected");
    if (Take(':')) {
      ASSIGN_OR_RETURN(std::string name, Name());
      return Node{Kind::kHas, std::move(name), {}, {}};
    }
    if (!Take('.')) return Mistake("':' or '.' is expected");
    return Comparison();
  }

  absl::StatusOr<Node> Comparison() {
    ASSIGN_OR_RETURN(std::string name, Name());
    const bool differs = Take('!');
    if (!Take('=')) return Mistake("'=' or '!=' is expected");
    ASSIGN_OR_RETURN(std::string value, Quoted());
    Node equals{Kind::kEquals, std::move(name), std::move(value), {}};
    if (!differs) return equals;
    Node node{Kind::kNot, {}, {}, {}};
    node.children.push_back(std::move(equals));
    return node;
  }

  absl::StatusOr<Node> Prefix() {
    if (!Take('(')) return Mistake("'(' is expected");
    if (!TakeWord("attributes") || !Take('.')) return Mistake("'attributes.' is expected");
    ASSIGN_OR_RETURN(std::string name, Name());
    if (!Take(',')) return Mistake("',' is expected");
    ASSIGN_OR_RETURN(std::string value, Quoted());
    if (!Take(')')) return Mistake("')' is missing");
    return Node{Kind::kPrefix, std::move(name), std::move(value), {}};
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
    const char c = text_[at_++];
    switch (c) {
      case 'n':
        *value += '\n';
        break;
      case 't':
        *value += '\t';
        break;
      case 'r':
        *value += '\r';
        break;
      case 'u':
        return Unicode(value);
      case '"':
      case '\\':
      case '\'':
        *value += c;
        break;
      default:
        --at_;
        return Mistake("this escape is not known");
    }
    return absl::OkStatus();
  }

  // \uXXXX, written as UTF-8.
  absl::Status Unicode(std::string* value) {
    uint32_t point = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      if (at_ == text_.size() || std::isxdigit(static_cast<unsigned char>(text_[at_])) == 0) {
        return Mistake("four hex digits are expected");
      }
      const char c = text_[at_];
      const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
      point = point << 4 | static_cast<uint32_t>(digit);
    }
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

  bool AtEnd() {
    SkipSpace();
    return at_ == text_.size();
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
  ASSIGN_OR_RETURN(Node root, FilterParser(text).Parse());
  return Filter(std::move(root));
}

}  // namespace lockstep::emulator
