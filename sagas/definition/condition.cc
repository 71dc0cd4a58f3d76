#include "sagas/definition/condition.h"

#include <algorithm>
#include <compare>

namespace lockstep::sagas {
namespace {

// Exact for integers: as doubles, 2^53 and 2^53 + 1 are one.
std::partial_ordering CompareNumbers(const Json& a, const Json& b) {
  if (a.is_number_float() || b.is_number_float()) return a.get<double>() <=> b.get<double>();
  const auto negative = [](const Json& n) {
    return !n.is_number_unsigned() && n.get<int64_t>() < 0;
  };
  if (negative(a) != negative(b)) {
    return negative(a) ? std::partial_ordering::less : std::partial_ordering::greater;
  }
  if (negative(a)) return a.get<int64_t>() <=> b.get<int64_t>();
  return a.get<uint64_t>() <=> b.get<uint64_t>();
}

std::partial_ordering Compare(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b);
  if (!a.is_string() || !b.is_string()) return std::partial_ordering::unordered;
  // Bytes of UTF-8 stand in the order of code points; char_traits compares them as unsigned.
  return a.get_ref<const std::string&>().compare(b.get_ref<const std::string&>()) <=> 0;
}

}  // namespace

bool SameValue(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b) == 0;
  if (a.type() != b.type()) return false;
  if (a.is_array()) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), SameValue);
  }
  if (!a.is_object()) return a == b;
  if (a.size() != b.size()) return false;
  for (const auto& item : a.items()) {
    const auto other = b.find(item.key());
    if (other == b.end() || !SameValue(item.value(), *other)) return false;
  }
  return true;
}

std::vector<Path> Condition::paths() const {
  std::vector<Path> paths;
  for (const Node& node : nodes_) {
    if (node.path.has_value()) paths.push_back(*node.path);
  }
  return paths;
}

const Json& Condition::Value(const Json& context, size_t node) const {
  static const Json null;
  if (nodes_[node].kind == Kind::kLiteral) return nodes_[node].literal;
  const Json* found = nodes_[node].path->Find(context);
  return found == nullptr ? null : *found;
}

bool Condition::Holds(const Json& context, size_t at) const {
  const Node& node = nodes_[at];
  const auto left = [&]() -> const Json& { return Value(context, node.left); };
  const auto right = [&]() -> const Json& { return Value(context, node.right); };
  switch (node.kind) {
    case Kind::kLiteral:
    case Kind::kPath: {
      const Json& value = Value(context, at);
      return value.is_boolean() && value.get<bool>();
    }
    case Kind::kEqual:
      return SameValue(left(), right());
    case Kind::kUnequal:
      return !SameValue(left(), right());
    case Kind::kLess:
      return Compare(left(), right()) < 0;
    case Kind::kAtMost:
      return Compare(left(), right()) <= 0;
    case Kind::kMore:
      return Compare(left(), right()) > 0;
    case Kind::kAtLeast:
      return Compare(left(), right()) >= 0;
    case Kind::kNot:
      return !Holds(context, node.left);
    case Kind::kAnd:
      return Holds(context, node.left) && Holds(context, node.right);
    case Kind::kOr:
      return Holds(context, node.left) || Holds(context, node.right);
  }
  return false;
}

}  // namespace lockstep::sagas
