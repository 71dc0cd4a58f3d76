#include "postgres/params.h"

#include <gtest/gtest.h>

namespace lockstep::postgres {
namespace {

TEST(Array, QuotesAndEscapesItsElements) {
  Array array;
  array.Add("plain");
  array.Add("with \"quotes\", {braces} and \\");
  array.AddNull();
  array.Add("");
  EXPECT_EQ(array.Text(), R"({"plain","with \"quotes\", {braces} and \\",NULL,""})");
  EXPECT_EQ(array.size(), 4U);
}

TEST(Array, WritesNumbersPlainly) {
  Array array;
  array.Add(int64_t{-9223372036854775807});
  array.Add(int64_t{0});
  EXPECT_EQ(array.Text(), "{-9223372036854775807,0}");
}

TEST(Bytea, ComesBackByteByByte) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  EXPECT_EQ(DecodeBytea(EncodeBytea(bytes)), bytes);
  EXPECT_EQ(EncodeBytea(""), "\\x");
}

}  // namespace
}  // namespace lockstep::postgres
