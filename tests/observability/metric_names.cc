#include "tests/observability/metric_names.h"

#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "tests/observability/process.h"

namespace lockstep::observability {
namespace {

// The samples that the documented metrics have: a histogram has three.
const std::set<std::string>& KnownSamples() {
  static const std::set<std::string> samples = [] {
    std::set<std::string> names;
    const std::string text = ReadFile(LOCKSTEP_SOURCE "/docs/metrics.md");
    const std::regex row(R"(\n\| `([a-z_]+)[^|]*\| (\w+) \|)");
    for (std::sregex_iterator i(text.begin(), text.end(), row), end; i != end; ++i) {
      const std::string name = (*i)[1];
      if ((*i)[2] != "histogram") {
        names.insert(name);
        continue;
      }
      for (const char* suffix : {"_bucket", "_sum", "_count"}) names.insert(name + suffix);
    }
    return names;
  }();
  return samples;
}

}  // namespace

std::set<std::string> DocumentedMetrics() {
  std::set<std::string> names;
  for (const std::string& sample : KnownSamples()) {
    names.insert(std::regex_replace(sample, std::regex("_(bucket|sum|count)$"), ""));
  }
  return names;
}

std::vector<std::string> UnknownMetrics(const std::string& expression) {
  static const std::set<std::string> kWords = {
      "sum",           "max",    "min", "count", "rate",   "increase",    "histogram_quantile",
      "max_over_time", "vector", "and", "or",    "unless", "label_values"};
  // Away with what is no metric: matchers, ranges, groupings, strings, and the label of
  // label_values.
  std::string text = expression;
  for (const char* other : {R"(\{[^}]*\})", R"(\[[^\]]*\])", R"(\b(by|without|on)\s*\([^)]*\))",
                            R"("[^"]*")", R"(,\s*\w+\)$)"}) {
    text = std::regex_replace(text, std::regex(other), " ");
  }
  std::vector<std::string> unknown;
  const std::regex word("[a-zA-Z_:][a-zA-Z0-9_:]*");
  for (std::sregex_iterator i(text.begin(), text.end(), word), end; i != end; ++i) {
    const std::string name = i->str();
    if (!kWords.contains(name) && !KnownSamples().contains(name)) unknown.push_back(name);
  }
  return unknown;
}

std::vector<std::string> DashboardQueries() {
  const auto dashboard =
      nlohmann::json::parse(ReadFile(LOCKSTEP_SOURCE "/deploy/grafana/lockstep.json"));
  std::vector<std::string> queries;
  for (const auto& panel : dashboard["panels"]) {
    for (const auto& target : panel.value("targets", nlohmann::json::array()))
      queries.push_back(target["expr"]);
  }
  for (const auto& variable : dashboard["templating"]["list"]) {
    if (variable["type"] == "query") queries.push_back(variable["definition"]);
  }
  return queries;
}

std::vector<AlertRule> AlertRules() {
  std::vector<AlertRule> rules;
  for (const auto& group :
       YAML::LoadFile(LOCKSTEP_SOURCE "/deploy/prometheus/alerts.yml")["groups"]) {
    for (const auto& rule : group["rules"]) {
      rules.push_back({rule["alert"].as<std::string>(), rule["expr"].as<std::string>()});
    }
  }
  return rules;
}

}  // namespace lockstep::observability
