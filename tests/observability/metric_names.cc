#include "tests/observability/metric_names.h"

#include <yaml-cpp/yaml.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/observability/process.h"

namespace lockstep::observability {
namespace {

using Names = std::set<std::string>;

Names WordsOf(const std::string& text) {
  const std::regex word("[a-zA-Z_:][a-zA-Z0-9_:]*");
  Names words;
  for (std::sregex_iterator i(text.begin(), text.end(), word), end; i != end; ++i)
    words.insert(i->str());
  return words;
}

// The samples that the documented metrics have, with their labels. A histogram has three samples;
// a section may name a label that all of its metrics have.
const std::map<std::string, Names>& KnownSamples() {
  static const std::map<std::string, Names> samples = [] {
    std::map<std::string, Names> known;
    const std::string text = ReadFile(LOCKSTEP_SOURCE "/docs/metrics.md");
    const std::regex row(
        R"(\n## [^\n]*by [^\n`]*`(\w+)`|\n\| `([a-z_]+)(\{[^}]*\})?` \| (\w+) \|)");
    Names common = {"instance", "job"};
    for (std::sregex_iterator i(text.begin(), text.end(), row), end; i != end; ++i) {
      if ((*i)[1].matched) {
        common = {"instance", "job", (*i)[1]};
        continue;
      }
      Names labels = WordsOf((*i)[3]);
      labels.insert(common.begin(), common.end());
      if ((*i)[4] != "histogram") {
        known[(*i)[2]] = labels;
        continue;
      }
      for (const char* suffix : {"_sum", "_count"}) known[(*i)[2].str() + suffix] = labels;
      labels.insert("le");
      known[(*i)[2].str() + "_bucket"] = labels;
    }
    return known;
  }();
  return samples;
}

}  // namespace

std::set<std::string> DocumentedMetrics() {
  std::set<std::string> names;
  for (const auto& [sample, labels] : KnownSamples()) {
    names.insert(std::regex_replace(sample, std::regex("_(bucket|sum|count)$"), ""));
  }
  return names;
}

std::vector<std::string> UnknownLabels(const std::string& expression) {
  Names known;
  for (const std::string& word : WordsOf(expression)) {
    if (const auto found = KnownSamples().find(word); found != KnownSamples().end())
      known.insert(found->second.begin(), found->second.end());
  }
  // Matchers, groupings, and the label of label_values.
  const std::string bare = std::regex_replace(expression, std::regex(R"("[^"]*")"), " ");
  const std::regex place(R"(\{([^}]*)\}|\b(?:by|without|on)\s*\(([^)]*)\)|,\s*(\w+)\)$)");
  std::vector<std::string> unknown;
  for (std::sregex_iterator i(bare.begin(), bare.end(), place), end; i != end; ++i) {
    for (const std::string& label :
         WordsOf((*i)[1].str() + " " + (*i)[2].str() + " " + (*i)[3].str())) {
      if (!known.contains(label)) unknown.push_back(label);
    }
  }
  return unknown;
}

std::vector<std::string> UnknownMetrics(const std::string& expression) {
  static const std::set<std::string> kWords = {
      "sum",           "max",           "min",    "count", "rate", "increase", "histogram_quantile",
      "max_over_time", "min_over_time", "vector", "and",   "or",   "unless",   "label_values"};
  // Away with what is no metric: matchers, ranges, groupings, strings, and the label of
  // label_values.
  std::string text = expression;
  for (const char* other : {R"(\{[^}]*\})", R"(\[[^\]]*\])", R"(\b(by|without|on)\s*\([^)]*\))",
                            R"("[^"]*")", R"(,\s*\w+\)$)"}) {
    text = std::regex_replace(text, std::regex(other), " ");
  }
  std::vector<std::string> unknown;
  for (const std::string& name : WordsOf(text)) {
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
