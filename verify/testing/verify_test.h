#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/test_database.h"
#include "verify/side.h"
#include "verify/verify.h"

namespace lockstep::verify {

inline std::string Line(const Difference& difference) {
  const auto version = [](const std::optional<int64_t>& value) {
    return value ? std::to_string(*value) : std::string("-");
  };
  return fmt::format("{} {} {} {}", Name(difference.kind), fmt::join(difference.key, "/"),
                     version(difference.source_version), version(difference.replica_version));
}

inline std::vector<std::string> Lines(const VerifyResult& result) {
  std::vector<std::string> lines;
  for (const Difference& difference : result.differences) lines.push_back(Line(difference));
  return lines;
}

// Two databases with a table of the same name each, which are compared. Test code.
class VerifyTest : public ::testing::Test {
 protected:
  VerifyTest() : at_source_(source_.Connect()), at_replica_(replica_.Connect()) {}

  // A table of the same name on both sides, and its columns.
  void Tables(const std::string& source, const std::string& replica) {
    source_.Run("CREATE TABLE public.t " + source);
    replica_.Run("CREATE TABLE public.t " + replica);
  }
  void OnBoth(const std::string& sql) {
    source_.Run(sql);
    replica_.Run(sql);
  }
  void Keys(std::vector<std::string> keys) {
    keys_.clear();
    for (const std::string& key : keys) keys_.push_back("r.\"" + key + "\"");
  }
  SideRows Rows(const std::string& what, const std::string& where = "") const {
    return {what, from_, keys_, "r.\"version\"", where};
  }

  absl::StatusOr<VerifyResult> Try() {
    const SideRows there = Rows("the replica", where_);
    auto types = ReadKeyTypes(*at_replica_, there);
    if (!types.ok()) return types.status();
    VerifySide source(*at_source_, Rows("the source"), *types);
    VerifySide replica(*at_replica_, there, *types);
    Verify verify({.source = source,
                   .replica = replica,
                   .passed =
                       [this](const std::stop_token&) {
                         ++passes_;
                         return passed_ ? passed_() : absl::OkStatus();
                       }},
                  options_);
    return verify.Run(stop_.get_token());
  }
  VerifyResult Run() {
    auto result = Try();
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : VerifyResult{};
  }

  testing::TestDatabase source_, replica_;
  std::unique_ptr<postgres::Connection> at_source_, at_replica_;
  std::vector<std::string> keys_ = {"r.\"id\""};
  std::string where_, from_ = "\"public\".\"t\"";
  VerifyOptions options_{.range_keys = 50};
  std::function<absl::Status()> passed_;
  int passes_ = 0;
  std::stop_source stop_;
};

inline constexpr char kThousand[] =
    "INSERT INTO public.t SELECT g, 3, 'title ' || g FROM generate_series(1, 1000) g";

}  // namespace lockstep::verify
