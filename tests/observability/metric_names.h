#pragma once

#include <set>
#include <string>
#include <vector>

// docs/metrics.md is the list of metrics; the dashboard and the alerts are held to it.
namespace lockstep::observability {

std::set<std::string> DocumentedMetrics();

// Metrics in a PromQL expression that are not in the list.
std::vector<std::string> UnknownMetrics(const std::string& expression);

// Labels in it that none of its metrics has.
std::vector<std::string> UnknownLabels(const std::string& expression);

// Every expression of deploy/grafana/lockstep.json, those of its variables included.
std::vector<std::string> DashboardQueries();

struct AlertRule {
  std::string name;
  std::string expression;
};
std::vector<AlertRule> AlertRules();

}  // namespace lockstep::observability
