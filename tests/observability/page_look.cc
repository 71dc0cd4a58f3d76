#include "tests/observability/page_look.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "tests/observability/process.h"

namespace lockstep::observability {

void LookAtPage(const std::string& url, const std::string& name,
                const std::vector<std::string>& texts) {
  constexpr int kSkipped = 77;
  std::vector<std::string> command = {LOCKSTEP_SOURCE "/tests/browser/look.sh",
                                      LOCKSTEP_BUILD "/tests/browser/node", "look.js", url, name};
  command.insert(command.end(), texts.begin(), texts.end());
  const std::string output =
      (std::filesystem::temp_directory_path() / ("lockstep-look." + std::to_string(getpid())))
          .string();
  const Ran looked = RunProgram(command, output);
  std::filesystem::remove(output);
  if (looked.status == kSkipped) {
    std::printf("[ PAGE NOT SEEN ] %s", looked.output.c_str());
    return;
  }
  EXPECT_EQ(looked.status, 0) << looked.output;
}

}  // namespace lockstep::observability
