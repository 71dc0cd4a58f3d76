#include "platform/config/database_address.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
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

// The file may change while the process runs: it is read for each connection.
TEST(DatabaseAddress, TakesThePasswordFromAFile) {
  const std::string file = ::testing::TempDir() + "lockstep 'password' %41&=.txt";
  for (const std::string address :
       {"postgresql://u@h/d", "postgresql://u@h/d?sslmode=require", "host=h user=u"}) {
    std::ofstream(file) << "p/w'?@&\\ %41\n";
    const std::string with = WithPasswordFile(address, file);
    EXPECT_EQ(WithoutPassword(with), address) << "nobody need see where it is";
    const auto read = ReadPasswordFile(with);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, address + (address.starts_with("host=") ? " password='p/w\\'?@&\\\\ %41'"
                                : address.ends_with("require")
                                    ? "&password=p%2Fw%27%3F%40%26%5C%20%2541"
                                    : "?password=p%2Fw%27%3F%40%26%5C%20%2541"));
    EXPECT_EQ(MaskPassword(*read).find("p%2Fw"), std::string::npos);
    std::ofstream(file) << "new";
    EXPECT_NE(ReadPasswordFile(with)->find("new"), std::string::npos);
    EXPECT_FALSE(ReadPasswordFile(WithPasswordFile(address, file + ".none")).ok());
    EXPECT_EQ(*ReadPasswordFile(address), address);
  }
}

TEST(DatabaseAddress, TellsWhereAnotherServerCouldAnswer) {
  unsetenv("PGSSLMODE");
  for (const char* fine :
       {"", "postgresql:///d", "postgresql://u@localhost/d", "postgresql://127.0.0.1:5432/d",
        "postgresql://[::1]/d", "host=/var/run user=u", "postgresql://%2Fvar%2Frun/d",
        "postgresql://u@db/d?sslmode=verify-full&sslrootcert=ca.crt",
        "host=db sslmode=verify-full"}) {
    EXPECT_EQ(UncheckedServer(fine), "") << fine;
  }
  for (const char* open : {"postgresql://u@db/d", "postgresql://u@db/d?sslmode=require",
                           "host=db sslmode=verify-ca", "postgresql://10.0.0.7/d"}) {
    EXPECT_NE(UncheckedServer(open).find("verify-full"), std::string::npos) << open;
  }
}

}  // namespace
}  // namespace lockstep
