#include "platform/printable.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

TEST(Printable, LeavesNothingThatATerminalActsOn) {
  EXPECT_EQ(Printable("\x1b]0;title\a\x1b[2J"), R"(\u001b]0;title\u0007\u001b[2J)");
  EXPECT_EQ(Printable("a\nb\rc\x7f"), R"(a\nb\u000dc\u007f)");
  EXPECT_EQ(Printable("\u009b31m\u0085"), R"(\u009b31m\u0085)") << "the one-character CSI";
  EXPECT_EQ(Printable("\x9b"
                      "31m"),
            R"(\x9b31m)")
      << "and as a byte";
  EXPECT_EQ(Printable("cba\u202egpj.exe\u2066\u200f\u061c\u2028"),
            R"(cba\u202egpj.exe\u2066\u200f\u061c\u2028)");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), R"(a\u0000b)");
}

TEST(Printable, LeavesTextAsItIs) {
  for (const char* text : {"", "item/42", "grün 漢字 🎬 שלום", R"(C:\new "x")"}) {
    EXPECT_EQ(Printable(text), text);
  }
  EXPECT_EQ(Printable("one\ntwo\x1b", /*keep_lines=*/true), "one\ntwo\\u001b");
}

TEST(Printable, KeepsJson) {
  const nlohmann::json json = {{"key", "\x1b\u009b\u202e\x7f\n\"\\ü"}};
  const std::string shown = Printable(json.dump(2), /*keep_lines=*/true);
  EXPECT_EQ(nlohmann::json::parse(shown), json);
  EXPECT_EQ(shown.find("\u202e"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
