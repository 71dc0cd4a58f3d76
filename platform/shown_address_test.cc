#include "platform/shown_address.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(ShownAddresses, HaveANumberInPlaceOfAQuery) {
  EXPECT_EQ(ShownAddresses("https://example.com/in?token=geheim"),
            "https://example.com/in?" + ShownAddresses("http://h/?token=geheim").substr(10));
  EXPECT_NE(ShownAddresses("https://h/?a=1"), ShownAddresses("https://h/?a=2"));
}

TEST(ShownAddresses, AreFoundInAnyText) {
  const std::string shown = ShownAddresses(
      "a=https://h/x?k=secret1,b=events,c=http://h?k=secret2, \"https://h/?secret3\"");
  EXPECT_EQ(shown.find("secret"), std::string::npos) << shown;
  EXPECT_NE(shown.find(",b=events,c=http://h?"), std::string::npos) << shown;
}

TEST(ShownAddresses, LeaveOtherTextAlone) {
  for (const char* text : {"", "why? because", "https://h/x", "postgresql://h/d?sslmode=require"}) {
    EXPECT_EQ(ShownAddresses(text), text);
  }
}

}  // namespace
}  // namespace lockstep
