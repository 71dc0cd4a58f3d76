// The manifests of deploy/ start the daemons, and their probes ask for what these serve.
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <filesystem>

#include "tests/observability/pair.h"

namespace lockstep::observability {
namespace {

class DeployTest : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  std::string role() const { return std::get<1>(GetParam()); }
  YAML::Node Container() const {
    const std::string folder = std::get<0>(GetParam());
    const YAML::Node manifest =
        YAML::LoadFile(LOCKSTEP_SOURCE "/deploy/" + folder + "/" + role() + ".yaml");
    return manifest["spec"]["template"]["spec"]["containers"][0];
  }
  // What the manifest mounts at /etc/lockstep.
  void PlaceFiles() const {
    const std::string file = pair_.directory + "/" + role() + ".yaml";
    WriteFile(file, ReadFile(LOCKSTEP_SOURCE "/deploy/config/" + role() + ".yaml"));
    Change(file, "my-project", "demo");
    Change(file, "0.0.0.0", "127.0.0.1");
    Change(file, role() == "runner" ? "port: 9102" : "port: 9101", "port: 0");
    for (const char* name : {"catalog.yaml", "video_events.pb"}) {
      std::filesystem::copy_file(std::string(LOCKSTEP_BUILD "/examples/catalog/") + name,
                                 pair_.directory + "/" + name);
    }
  }
  // As the manifest has it, but for the place of the file, and at a free port of this machine.
  std::vector<std::string> CommandLine(const YAML::Node& container) const {
    std::vector<std::string> command = {container["command"][0].as<std::string>()};
    for (const auto& argument : container["args"]) {
      std::string word = argument.as<std::string>();
      if (word.starts_with("/etc/lockstep/")) word.replace(0, 13, pair_.directory);
      if (word == "0.0.0.0") word = "127.0.0.1";
      if (word == "8080") word = "0";
      command.push_back(std::move(word));
    }
    return command;
  }

  Pair pair_;
};

class OrchestratorManifest : public ::testing::TestWithParam<const char*> {
 protected:
  Pair pair_;
};

TEST_P(DeployTest, StartsAndAnswersItsProbes) {
  PlaceFiles();
  const YAML::Node container = Container();
  ASSERT_EQ(container["env"][0]["name"].as<std::string>(), "LOCKSTEP_DATABASE");
  const std::string database = role() == "runner" ? pair_.feed.url() : pair_.source.url();
  std::string url;
  const auto daemon = pair_.Start(CommandLine(container), {{"LOCKSTEP_DATABASE", database}}, url);
  for (const char* probe : {"startupProbe", "livenessProbe", "readinessProbe"}) {
    if (!container[probe]) continue;  // Cloud Run has no readiness probe
    const std::string path = container[probe]["httpGet"]["path"].as<std::string>();
    EXPECT_TRUE(pair_.Await([&] { return Get(url + path).status == 200; }, probe))
        << path << "\n"
        << daemon->output();
  }
}

TEST_P(OrchestratorManifest, StartsAndAnswersItsProbes) {
  ASSERT_EQ(pair_.Ctl({"--database", pair_.source.url(), "migrate", "up", "--set", "saga"}).status,
            0);
  const std::string file = pair_.directory + "/orchestrator.yaml";
  WriteFile(file, ReadFile(LOCKSTEP_SOURCE "/deploy/config/orchestrator.yaml"));
  Change(file, "0.0.0.0", "127.0.0.1");
  Change(file, "port: 9103", "port: 0");
  const YAML::Node container =
      YAML::LoadFile(std::string(LOCKSTEP_SOURCE "/deploy/") + GetParam() +
                     "/orchestrator.yaml")["spec"]["template"]["spec"]["containers"][0];
  ASSERT_EQ(container["args"][1].as<std::string>(), "/etc/lockstep/orchestrator.yaml");
  std::string url;
  const auto daemon = pair_.Start({container["command"][0].as<std::string>(), "--config", file},
                                  {{"LOCKSTEP_DATABASE", pair_.source.url()}}, url);
  for (const char* probe : {"startupProbe", "livenessProbe", "readinessProbe"}) {
    if (!container[probe]) continue;  // Cloud Run has no readiness probe
    const std::string path = container[probe]["httpGet"]["path"].as<std::string>();
    EXPECT_TRUE(pair_.Await([&] { return Get(url + path).status == 200; }, probe))
        << path << "\n"
        << daemon->output();
  }
}

INSTANTIATE_TEST_SUITE_P(Manifests, OrchestratorManifest,
                         ::testing::Values("kubernetes", "cloudrun"),
                         [](const auto& param) { return std::string(param.param); });

INSTANTIATE_TEST_SUITE_P(Manifests, DeployTest,
                         ::testing::Combine(::testing::Values("kubernetes", "cloudrun"),
                                            ::testing::Values("publisher", "runner")),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param)) + "_" +
                                  std::get<1>(param.param);
                         });

}  // namespace
}  // namespace lockstep::observability
