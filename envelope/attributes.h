#pragma once

#include <algorithm>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// Its value is the publisher's position; a message with it and without an event is a heartbeat.
inline constexpr char kHeartbeatAttribute[] = "lockstep_heartbeat";

// What makes a message a snapshot, and what a snapshot may do besides.
inline constexpr char kKindAttribute[] = "lockstep_kind";
inline constexpr char kKindSnapshot[] = "snapshot";
inline constexpr char kOverwriteAttribute[] = "lockstep_overwrite";
inline constexpr char kAbsentAttribute[] = "lockstep_absent";

// The attributes of a message: a map of a dozen short texts, in the order in which they were set.
// They lie side by side and are found by looking along them: a tree costs an allocation for each,
// on every message of a stream, and finds them no sooner.
class Attributes {
 public:
  using value_type = std::pair<std::string, std::string>;
  using iterator = std::vector<value_type>::iterator;
  using const_iterator = std::vector<value_type>::const_iterator;

  Attributes() = default;
  // As with any map, the first of two equal names counts.
  Attributes(std::initializer_list<value_type> items) {
    reserve(items.size());
    for (const value_type& item : items) emplace(item.first, item.second);
  }

  iterator begin() { return items_.begin(); }
  iterator end() { return items_.end(); }
  const_iterator begin() const { return items_.begin(); }
  const_iterator end() const { return items_.end(); }
  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  void reserve(size_t count) { items_.reserve(count); }
  void clear() { items_.clear(); }

  iterator find(std::string_view name) { return std::find_if(begin(), end(), Named{name}); }
  const_iterator find(std::string_view name) const {
    return std::find_if(begin(), end(), Named{name});
  }
  bool contains(std::string_view name) const { return find(name) != end(); }
  const std::string& at(std::string_view name) const {
    const auto found = find(name);
    if (found == end()) throw std::out_of_range("no attribute '" + std::string(name) + "'");
    return found->second;
  }
  std::string& operator[](std::string_view name) { return emplace(name, "").first->second; }

  std::pair<iterator, bool> emplace(std::string_view name, std::string_view value) {
    if (const auto found = find(name); found != end()) return {found, false};
    items_.emplace_back(name, value);
    return {std::prev(end()), true};
  }
  size_t erase(std::string_view name) { return std::erase_if(items_, Named{name}); }
  template <typename Predicate>
  friend size_t erase_if(Attributes& attributes, const Predicate& predicate) {
    return std::erase_if(attributes.items_, predicate);
  }

  friend bool operator==(const Attributes& a, const Attributes& b) {
    return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const value_type& item) {
             const auto other = b.find(item.first);
             return other != b.end() && other->second == item.second;
           });
  }

 private:
  struct Named {
    std::string_view name;
    bool operator()(const value_type& item) const { return item.first == name; }
  };

  std::vector<value_type> items_;
};

}  // namespace lockstep
