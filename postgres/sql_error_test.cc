#include "postgres/sql_error.h"

#include <gtest/gtest.h>

#include "platform/status.h"

namespace lockstep::postgres {
namespace {

TEST(SqlError, IsClassifiedByItsState) {
  const std::pair<const char*, ErrorClass> cases[] = {
      {"08006", ErrorClass::kTransient},     {"40001", ErrorClass::kTransient},
      {"40P01", ErrorClass::kTransient},     {"53100", ErrorClass::kTransient},
      {"55P03", ErrorClass::kTransient},     {"57014", ErrorClass::kTransient},
      {"57P01", ErrorClass::kTransient},     {"58030", ErrorClass::kTransient},
      {"21000", ErrorClass::kData},          {"22P02", ErrorClass::kData},
      {"23505", ErrorClass::kData},          {"44000", ErrorClass::kData},
      {"54000", ErrorClass::kData},          {"P0001", ErrorClass::kData},
      {"XX000", ErrorClass::kData},          {"42P01", ErrorClass::kConfiguration},
      {"42501", ErrorClass::kConfiguration}, {"28P01", ErrorClass::kConfiguration},
      {"3F000", ErrorClass::kConfiguration}, {"25001", ErrorClass::kConfiguration},
      {"25006", ErrorClass::kTransient},
  };
  for (const auto& [state, expected] : cases) {
    EXPECT_EQ(Classify(SqlError(state, "x")), expected) << state;
    EXPECT_EQ(SqlState(SqlError(state, "x")), state);
  }
}

TEST(SqlError, DropsDetailAndContext) {
  const absl::Status error =
      SqlError("23505", "ERROR:  duplicate key\nDETAIL:  Key (x)=(secret)\n");
  EXPECT_EQ(MessageOf(error), "ERROR:  duplicate key");
}

TEST(SqlError, DoesNotQuoteTheValueThatIsWrong) {
  const auto message = [](const char* text) {
    return std::string(MessageOf(SqlError("22P02", text)));
  };
  EXPECT_EQ(message("ERROR:  invalid input syntax for type uuid: \"secret\""),
            "ERROR:  invalid input syntax for type uuid: \"…\"");
  EXPECT_EQ(message("ERROR:  value \"se\"cr\net\" is out of range for type integer"),
            "ERROR:  value \"…\" is out of range for type integer");
  EXPECT_EQ(message("ERROR:  malformed array literal: \"sec\nret"),
            "ERROR:  malformed array literal: \"…\"");
  EXPECT_EQ(MessageOf(SqlError("23502", "ERROR:  null value in column \"title\"")),
            "ERROR:  null value in column \"title\"")
      << "names are not values";
}

TEST(InDoubt, IsItsOwnClass) { EXPECT_EQ(Classify(InDoubtError("gone")), ErrorClass::kInDoubt); }

}  // namespace
}  // namespace lockstep::postgres
