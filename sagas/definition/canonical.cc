#include "sagas/definition/canonical.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace lockstep::sagas {
namespace {

Json CanonicalNumber(const Json& value) {
  if (value.is_number_unsigned()) return value;
  if (value.is_number_integer()) {
    // A positive one is unsigned when it is parsed.
    const auto number = value.get<int64_t>();
    return number < 0 ? value : Json(static_cast<uint64_t>(number));
  }
  const auto number = value.get<double>();
  constexpr double kTwoTo63 = 9223372036854775808.0;
  constexpr double kTwoTo64 = 18446744073709551616.0;
  if (std::trunc(number) != number) return value;
  if (number >= 0 && number < kTwoTo64) return static_cast<uint64_t>(number);
  if (number < 0 && number >= -kTwoTo63) return static_cast<int64_t>(number);
  return value;
}

void Count(const Json& value, size_t most, size_t* bytes) {
  if (*bytes > most) return;
  if (value.is_object()) {
    *bytes += 2;
    for (const auto& item : value.items()) {
      *bytes += item.key().size() + 4;
      Count(item.value(), most, bytes);
      if (*bytes > most) return;
    }
  } else if (value.is_array()) {
    *bytes += 2;
    for (const Json& item : value) {
      *bytes += 1;
      Count(item, most, bytes);
      if (*bytes > most) return;
    }
  } else if (value.is_string()) {
    *bytes += value.get_ref<const std::string&>().size() + 2;
  } else {
    *bytes += value.is_number() ? 8 : 4;
  }
}

}  // namespace

Json Canonical(const Json& value) {
  if (value.is_number()) return CanonicalNumber(value);
  if (value.is_array()) {
    Json list = Json::array();
    for (const Json& item : value) list.push_back(Canonical(item));
    return list;
  }
  if (!value.is_object()) return value;
  std::map<std::string, const Json*> sorted;
  for (const auto& item : value.items()) sorted[item.key()] = &item.value();
  Json map = Json::object();
  // Not by operator[], which would look for each key among those before it.
  auto& members = map.get_ref<Json::object_t&>();
  for (const auto& [key, member] : sorted) {
    members.emplace_back(key, Canonical(*member));
  }
  return map;
}

bool DepthWithin(const Json& value, int most) {
  if (!value.is_structured()) return true;
  if (most <= 0) return false;
  return std::all_of(value.begin(), value.end(),
                     [most](const Json& item) { return DepthWithin(item, most - 1); });
}

size_t ApproximateSize(const Json& value, size_t most) {
  size_t bytes = 0;
  Count(value, most, &bytes);
  return bytes;
}

}  // namespace lockstep::sagas
