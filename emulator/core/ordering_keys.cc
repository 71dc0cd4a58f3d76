#include "emulator/core/ordering_keys.h"

#include <algorithm>

namespace lockstep::emulator {

void OrderingKeys::Append(Entry* entry) {
  const std::string& name = entry->message->ordering_key;
  auto it = keys_.find(name);
  if (it == keys_.end()) {
    if (entry->state == AckState::kAcked) return log_->Forget(entry);
    it = keys_.emplace(name, std::make_unique<KeyQueue>()).first;
    it->second->name = name;
  }
  KeyQueue* key = it->second.get();
  key->entries.push_back(entry->message->sequence);
  entry->key = key;
  Place(key);
}

KeyQueue* OrderingKeys::NextFor(Consumer* consumer, bool loose) {
  KeyQueue* const own = consumer->keys.empty() ? nullptr : consumer->keys.front();
  KeyQueue* const free = loose && !ready_.empty() ? ready_.front() : nullptr;
  if (own == nullptr || free == nullptr) return own != nullptr ? own : free;
  return own->entries[own->next] < free->entries[free->next] ? own : free;
}

void OrderingKeys::Bind(KeyQueue* key, Consumer* owner) {
  if (key->owner == owner) return;
  if (key->owner != nullptr) --key->owner->bound_keys;
  if (owner != nullptr) ++owner->bound_keys;
  key->owner = owner;
}

void OrderingKeys::Rewind(uint64_t sequence, uint64_t oldest_lease) {
  KeyQueue* key = log_->At(sequence).key;
  const auto first = std::lower_bound(key->entries.begin(), key->entries.end(), sequence);
  const auto reach = key->entries.begin() + static_cast<std::ptrdiff_t>(key->reach);
  for (auto it = first; it < reach; ++it) {
    Entry& entry = log_->At(*it);
    if (entry.state == AckState::kLeased) log_->EndLease(&entry);
    entry.state = AckState::kPending;
    entry.lease = 0;
    entry.oldest_lease = oldest_lease;
  }
  key->next = std::min(key->next, static_cast<size_t>(first - key->entries.begin()));
}

void OrderingKeys::Tidy(KeyQueue* key) {
  while (!key->entries.empty()) {
    Entry& front = log_->At(key->entries.front());
    if (front.state != AckState::kAcked) break;
    front.key = nullptr;
    log_->Forget(&front);
    key->entries.pop_front();
    if (key->next > 0) --key->next;
    if (key->reach > 0) --key->reach;
  }
  if (key->outstanding == 0) Bind(key, nullptr);
  Place(key);
  if (key->entries.empty()) keys_.erase(std::string(key->name));  // a copy: it dies with the key
}

void OrderingKeys::Place(KeyQueue* key) {
  if (key->next == key->entries.size() || key->blocked) return MoveTo(key, nullptr);
  if (key->owner == nullptr) return MoveTo(key, &ready_);
  MoveTo(key, key->owner->closed ? nullptr : &key->owner->keys);
}

void OrderingKeys::PlaceLast(KeyQueue* key) {
  MoveTo(key, nullptr);
  Place(key);
}

void OrderingKeys::Park(Consumer* consumer) {
  while (!consumer->keys.empty()) MoveTo(consumer->keys.front(), nullptr);
}

void OrderingKeys::Transfer(Consumer* from, Consumer* to) {
  if (from->bound_keys == 0) return;
  for (auto& [name, key] : keys_) {
    if (key->owner != from) continue;
    Bind(key.get(), to);
    Place(key.get());
  }
}

void OrderingKeys::Clear() {
  for (auto& [name, key] : keys_) {
    Bind(key.get(), nullptr);
    MoveTo(key.get(), nullptr);
  }
  keys_.clear();
}

void OrderingKeys::MoveTo(KeyQueue* key, std::list<KeyQueue*>* list) {
  if (key->list == list) return;
  if (key->list != nullptr) key->list->erase(key->position);
  key->list = list;
  if (list != nullptr) key->position = list->insert(list->end(), key);
}

}  // namespace lockstep::emulator
