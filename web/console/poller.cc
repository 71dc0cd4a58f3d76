#include "web/console/poller.h"

#include <algorithm>
#include <utility>

#include "platform/http_client/url.h"
#include "platform/status.h"

namespace lockstep::web {
namespace {

constexpr size_t kLargest = 2 << 20;

std::shared_ptr<const http::Settings> AskSettings() {
  auto settings = std::make_shared<http::Settings>();
  settings->connect_timeout = Millis(1'500);
  settings->timeout = Millis(3'000);
  settings->allow_private = true;  // daemons listen in private networks
  settings->read_body = kLargest;
  settings->keep_body = kLargest;
  return settings;
}

absl::StatusOr<nlohmann::json> Read(const absl::StatusOr<http::Answer>& answer,
                                    const Instance& instance) {
  if (!answer.ok()) return answer.status();
  if (answer->status == 421) {
    return Unavailable(
        "it is not called by that name: set http.advertise, or add it to http.hosts");
  }
  if (answer->status != 200) return Unavailable("it answers with status {}", answer->status);
  if (answer->body.size() >= kLargest) return Unavailable("its answer is too large");
  return TellOf(answer->body, instance);
}

}  // namespace

Poller::Poller(Millis every)
    : client_({.max_requests = 32, .max_requests_per_origin = 4}),
      ticker_(every, [this] { Round(); }) {}

void Poller::Stop() {
  ticker_.Stop();
  client_.Stop();
}

void Poller::Follow(const std::vector<Instance>& instances) {
  std::vector<Entry> entries;
  const std::scoped_lock lock(mu_);
  for (const Instance& instance : instances) {
    if (entries.size() >= kMostInstances) break;
    const auto same = [&](const Entry& entry) {
      return entry.asked.instance.address == instance.address &&
             entry.asked.instance.name == instance.name;
    };
    if (std::ranges::any_of(entries, same)) continue;
    const auto known = std::ranges::find_if(entries_, same);
    entries.push_back(known == entries_.end() ? Entry() : std::move(*known));
    entries.back().asked.instance = instance;
  }
  left_out_ = instances.size() > kMostInstances ? instances.size() - kMostInstances : 0;
  entries_ = std::move(entries);
}

std::vector<Asked> Poller::Look() const {
  const std::scoped_lock lock(mu_);
  std::vector<Asked> all;
  for (const Entry& entry : entries_) all.push_back(entry.asked);
  return all;
}

void Poller::Round() {
  std::vector<Instance> due;
  {
    const std::scoped_lock lock(mu_);
    for (Entry& entry : entries_) {
      if (!std::exchange(entry.under_way, true)) due.push_back(entry.asked.instance);
    }
  }
  static const std::shared_ptr<const http::Settings> settings = AskSettings();
  for (const Instance& instance : due) {
    std::string address = instance.address;
    while (address.ends_with('/')) address.pop_back();
    auto url = http::ParseUrl(address + "/api/status");
    if (!url.ok()) {
      Note(instance, url.status());
      continue;
    }
    client_.Send({.url = *std::move(url), .settings = settings, .get = true},
                 [this, instance](absl::StatusOr<http::Answer> answer) {
                   Note(instance, std::move(answer));
                 });
  }
}

void Poller::Note(const Instance& instance, absl::StatusOr<http::Answer> answer) {
  auto told = Read(answer, instance);
  const WallTime now = Clock::System().Now();
  const std::scoped_lock lock(mu_);
  for (Entry& entry : entries_) {
    Asked& asked = entry.asked;
    if (asked.instance.address != instance.address || asked.instance.name != instance.name) {
      continue;
    }
    entry.under_way = false;
    if (asked.since == WallTime() || asked.answers != told.ok()) asked.since = now;
    asked.answers = told.ok();
    asked.fault = told.ok() ? "" : std::string(MessageOf(told.status()));
    if (!told.ok()) continue;
    asked.answered_at = now;
    asked.told = *std::move(told);
  }
}

}  // namespace lockstep::web
