#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "fuzz/fuzz_target.h"

// The corpora of fuzz/corpus, and whatever once broke a target, through all targets: what the
// fuzzer found stays found, without a fuzzer.
namespace lockstep::fuzz {
namespace {

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& [name, target] : Targets()) names.push_back(name);
  return names;
}

class CorpusTest : public ::testing::TestWithParam<std::string> {};

TEST_P(CorpusTest, ComesBackFromEveryInput) {
  int inputs = 0;
  const std::filesystem::path folder(LOCKSTEP_CORPUS);
  for (const auto& entry : std::filesystem::directory_iterator(folder / GetParam())) {
    SCOPED_TRACE(entry.path().string());
    std::ifstream in(entry.path(), std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    Targets()[GetParam()](text.str());
    ++inputs;
  }
  EXPECT_GT(inputs, 0) << "no inputs in " << folder / GetParam();
  Targets()[GetParam()]("");
}

INSTANTIATE_TEST_SUITE_P(Fuzz, CorpusTest, ::testing::ValuesIn(Names()),
                         [](const auto& target) { return target.param; });

TEST(Corpus, HasAFolderForEveryTarget) {
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_CORPUS)) {
    EXPECT_TRUE(Targets().contains(entry.path().filename().string())) << entry.path();
  }
  EXPECT_GE(Targets().size(), 10);
}

}  // namespace
}  // namespace lockstep::fuzz
