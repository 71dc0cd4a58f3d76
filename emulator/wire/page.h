#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/status.h"

namespace lockstep::emulator {

// Part of a list, as the List calls answer it.
template <typename Item>
struct Page {
  std::vector<Item> items;
  std::string next_token;
};

struct PageRequest {
  int size = 0;  // 0 = the default
  std::string token;
};

// The items of a map of resources whose names begin with `prefix` and which `pick` picks (it
// returns an optional), one page of them. A token is the last name of the page before.
template <typename Item, typename Map, typename Pick>
absl::StatusOr<Page<Item>> ListPage(const Map& map, std::string_view prefix,
                                    const PageRequest& request, const Pick& pick) {
  constexpr int kDefaultSize = 100;
  constexpr int kMaxSize = 1000;
  if (request.size < 0) return InvalidArgument("Invalid page_size: {}.", request.size);
  if (!request.token.empty() && request.token.substr(0, prefix.size()) != prefix) {
    return InvalidArgument("Invalid page_token.");
  }
  const auto size =
      static_cast<size_t>(request.size == 0 ? kDefaultSize : std::min(request.size, kMaxSize));
  Page<Item> page;
  auto it =
      request.token.empty() ? map.lower_bound(std::string(prefix)) : map.upper_bound(request.token);
  std::string last;
  for (; it != map.end() && it->first.compare(0, prefix.size(), prefix) == 0; ++it) {
    auto item = pick(it->second);
    if (!item) continue;
    if (page.items.size() == size) {
      page.next_token = last;
      break;
    }
    last = it->first;
    page.items.push_back(*std::move(item));
  }
  return page;
}

}  // namespace lockstep::emulator
