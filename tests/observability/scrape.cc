#include "tests/observability/scrape.h"

#include <regex>

#include "tests/observability/pair.h"

namespace lockstep::observability {

std::set<std::string> Exported(const std::string& text) {
  std::set<std::string> names;
  const std::regex type("# TYPE ([a-zA-Z_:]+) ");
  for (std::sregex_iterator i(text.begin(), text.end(), type), end; i != end; ++i)
    names.insert((*i)[1]);
  return names;
}

std::set<std::string> Labels(const std::string& text) {
  std::set<std::string> names;
  const std::regex label("[{,]([a-z_]+)=\"");
  for (std::sregex_iterator i(text.begin(), text.end(), label), end; i != end; ++i)
    names.insert((*i)[1]);
  return names;
}

void Scrape::Read() { samples_ = ParseMetrics(Get(url_ + "/metrics").body); }

double Scrape::operator()(const std::string& name, const std::string& labels) {
  looked_at_.insert(std::regex_replace(name, std::regex("_(sum|count)$"), ""));
  const auto found = samples_.find(labels.empty() ? name : name + "{" + labels + "}");
  return found == samples_.end() ? std::nan("") : found->second;
}

std::set<std::string> Scrape::NotLookedAt() const {
  std::set<std::string> names = Exported(Get(url_ + "/metrics").body);
  for (const std::string& name : looked_at_) names.erase(name);
  return names;
}

}  // namespace lockstep::observability
