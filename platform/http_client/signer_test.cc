#include "platform/http_client/signer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/fake_clock.h"

namespace lockstep::http {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class SignerTest : public ::testing::Test {
 protected:
  ~SignerTest() override { std::filesystem::remove(path_); }
  void Write(const std::string& text) {
    const std::string fresh = path_ + ".new";
    std::ofstream(fresh) << text;
    std::filesystem::rename(fresh, path_);
  }
  const std::string path_ = (std::filesystem::temp_directory_path() /
                             ("signer_test." + std::to_string(getpid()) + "." +
                              ::testing::UnitTest::GetInstance()->current_test_info()->name()))
                                .string();
  const std::string old_ = "old-secret-of-32-characters-xxxx";
  const std::string new_ = "new-secret-of-32-characters-xxxx";
};

// What openssl says: printf 1767225600.id.body | openssl dgst -sha256 -hmac KEY.
TEST_F(SignerTest, IsHmacSha256OfTimeIdAndBody) {
  EXPECT_EQ(Hmac("0123456789abcdef", 1'767'225'600, "id", "body"),
            "44e2648eaf7cc052e0628dd9cc6194673214e252e429663187c37571beba1692");
}

TEST_F(SignerTest, SignsWithAllSecretsTheNewestFirst) {
  Write("# rotated in May\n" + new_ + "\n\n  " + old_ + "  \n");
  auto signer = Signer::Open(path_);
  ASSERT_TRUE(signer.ok()) << signer.status();
  const std::string header = (*signer)->Header("e1", "{}");
  EXPECT_THAT(header, StartsWith("Lockstep-Signature: t="));
  const int64_t at = std::stoll(header.substr(header.find("t=") + 2));
  EXPECT_THAT(header,
              HasSubstr(",v1=" + Hmac(new_, at, "e1", "{}") + ",v1=" + Hmac(old_, at, "e1", "{}")));
}

TEST_F(SignerTest, ReadsItsFileAgainWhenItChanges) {
  Write(old_);
  auto signer = Signer::Open(path_);
  ASSERT_TRUE(signer.ok()) << signer.status();
  (*signer)->Header("e1", "{}");
  Write(new_ + "\n" + old_);
  const std::string header = (*signer)->Header("e1", "{}");
  const int64_t at = std::stoll(header.substr(header.find("t=") + 2));
  EXPECT_THAT(header, HasSubstr(Hmac(new_, at, "e1", "{}")));
}

TEST_F(SignerTest, GoesOnWithWhatItKnowsWhenTheFileIsGoneOrEmpty) {
  Write(old_);
  auto signer = Signer::Open(path_);
  ASSERT_TRUE(signer.ok()) << signer.status();
  Write("");
  EXPECT_THAT((*signer)->Header("e1", "{}"), HasSubstr(",v1="));
  std::filesystem::remove(path_);
  EXPECT_THAT((*signer)->Header("e1", "{}"), HasSubstr(",v1="));
}

TEST_F(SignerTest, RefusesAFileWithoutASecretAndShortOnes) {
  EXPECT_FALSE(Signer::Open(path_).ok());
  Write("# nothing\n");
  EXPECT_FALSE(Signer::Open(path_).ok());
  Write("short\n");
  EXPECT_FALSE(Signer::Open(path_).ok());
}

}  // namespace
}  // namespace lockstep::http
