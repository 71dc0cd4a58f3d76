#include "platform/config/database_address.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace lockstep {
namespace {

struct Case {
  std::string address, masked, without;
};

TEST(DatabaseAddress, NeverShowsAPassword) {
  const Case cases[] = {
      {"postgresql://u:p@h/d", "postgresql://u:***@h/d", "postgresql://u@h/d"},
      {"postgres://u:p@h:5432/d?sslmode=require", "postgres://u:***@h:5432/d?sslmode=require",
       "postgres://u@h:5432/d?sslmode=require"},
      {"postgresql://u:p@ss@h/d", "postgresql://u:***@h/d", "postgresql://u@h/d"},
      {"postgresql://h/d?user=u&password=p&sslpassword=q",
       "postgresql://h/d?user=u&password=***&sslpassword=***", "postgresql://h/d?user=u"},
      {"postgresql://u:p@h/d?password=p", "postgresql://u:***@h/d?password=***",
       "postgresql://u@h/d"},
      {"postgresql://u@h/d", "postgresql://u@h/d", "postgresql://u@h/d"},
      {"postgresql://h:5432/d", "postgresql://h:5432/d", "postgresql://h:5432/d"},
      {"host=h password=p user=u", "host=h password=*** user=u", "host=h user=u"},
      {"password='it\\'s p' host=h", "password=*** host=h", "host=h"},
      {"password = p host=h", "password=*** host=h", "host=h"},
      {"password=my secret host=h", "password=*** *** host=h", "host=h"},
      {"host=h password=my secret", "host=h password=*** ***", "host=h"},
      {"catalog", "catalog", "catalog"},
      {"postgresql://u:p?q@h/d?a=b", "postgresql://u:***@h/d?a=b", "postgresql://u@h/d?a=b"},
      {"postgresql://u:p/q@h/d", "postgresql://u:***@h/d", "postgresql://u@h/d"},
      {"postgresql://u:p/q?r@h/d", "postgresql://u:***@h/d", "postgresql://u@h/d"},
      {"postgresql://h:5432/d?application_name=a@b", "postgresql://h:5432/d?application_name=a@b",
       "postgresql://h:5432/d?application_name=a@b"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(MaskPassword(c.address), c.masked) << c.address;
    EXPECT_EQ(WithoutPassword(c.address), c.without) << c.address;
  }
}

TEST(DatabaseAddress, ScrubsErrorTextsOfAPasswordAndItsPieces) {
  const std::string_view address = "postgresql://lockstep:s3cret/ab@cd@db.example/catalog";
  const std::pair<std::string, std::string> cases[] = {
      {R"(connection to server at "db.example", port 5432 failed: FATAL:  no role "lockstep")",
       R"(connection to server at "db.example", port 5432 failed: FATAL:  no role "lockstep")"},
      {R"(invalid integer value "s3cret" for connection option "port")",
       R"(invalid integer value "***" for connection option "port")"},
      {R"(could not translate host name "cd@db.example" to address)",
       R"(could not translate host name "***" to address)"},
      {"a piece outside of quotes: s3cret", "a piece outside of quotes: ***"},
  };
  for (const auto& [text, clean] : cases) EXPECT_EQ(ScrubPassword(text, address), clean);
  EXPECT_EQ(ScrubPassword(R"(no role "x")", "postgresql://u@h/d"), R"(no role "x")");
}

TEST(DatabaseAddress, HidesPasswordsFromTheProcessList) {
  std::vector<std::string> arguments = {"program",
                                        "--database",
                                        "postgresql://u:s3cret@h/d",
                                        "--database=host=h password=s3cret user=u",
                                        "--once",
                                        "postgresql://u:p@h/d"};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  HidePasswords(static_cast<int>(argv.size()), argv.data());
  EXPECT_STREQ(argv[0], "program");
  EXPECT_STREQ(argv[1], "--database");
  EXPECT_STREQ(argv[2], "postgresql://u:***@h/d");
  EXPECT_STREQ(argv[3], "--database=host=h password=*** user=u");
  EXPECT_STREQ(argv[4], "--once");
  EXPECT_STREQ(argv[5], "postgresql://u:***@h");  // no longer than it was
}

}  // namespace
}  // namespace lockstep
