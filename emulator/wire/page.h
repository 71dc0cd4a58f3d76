#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "platform/status.h"

namespace lockstep::emulator {

// Answers a List call with one page of a map of resources: those whose names begin with `prefix`,
// as `item_of` shows them, in the field `items` of the response. A token is the last name of the
// page before.
template <typename Request, typename Map, typename ItemOf, typename Item, typename Response>
absl::StatusOr<Response> ListPage(const Request& request, const Map& map, std::string_view prefix,
                                  const ItemOf& item_of,
                                  google::protobuf::RepeatedPtrField<Item>* (Response::*items)()) {
  constexpr int kDefaultSize = 100;
  constexpr int kMaxSize = 1000;
  const std::string& token = request.page_token();
  if (request.page_size() < 0) {
    return InvalidArgument("Invalid page_size: {}.", request.page_size());
  }
  if (!token.empty() && !token.starts_with(prefix)) return InvalidArgument("Invalid page_token.");
  const int size =
      request.page_size() == 0 ? kDefaultSize : std::min(request.page_size(), kMaxSize);
  Response response;
  auto* page = (response.*items)();
  auto it = token.empty() ? map.lower_bound(std::string(prefix)) : map.upper_bound(token);
  for (; it != map.end() && it->first.starts_with(prefix); ++it) {
    if (page->size() == size) {
      response.set_next_page_token(std::prev(it)->first);
      break;
    }
    *page->Add() = item_of(it->second);
  }
  return response;
}

}  // namespace lockstep::emulator
