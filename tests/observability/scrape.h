#pragma once

#include <map>
#include <set>
#include <string>

namespace lockstep::observability {

// The names of a /metrics answer, by its TYPE lines.
std::set<std::string> Exported(const std::string& text);

// The names of all labels in it.
std::set<std::string> Labels(const std::string& text);

// What one process exports at a moment, and which of its metrics a test has looked at.
class Scrape {
 public:
  explicit Scrape(std::string url) : url_(std::move(url)) {}

  void Read();
  // A sample as of the last Read; NaN = not there. Labels are sorted, as the exporter writes them.
  double operator()(const std::string& name, const std::string& labels = R"(group="feed")");
  std::set<std::string> NotLookedAt() const;

 private:
  const std::string url_;
  std::map<std::string, double> samples_;
  std::set<std::string> looked_at_;
};

}  // namespace lockstep::observability
