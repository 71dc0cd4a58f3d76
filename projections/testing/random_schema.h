#pragma once

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "projections/testing/naive_applier.h"

namespace lockstep::projections {

// Chances and choices that a seed repeats. Test code.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int Pick(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }
  bool Chance(int percent) { return Pick(100) < percent; }
  uint64_t Bits() { return random_(); }

 private:
  std::mt19937_64 random_;
};

struct RandomColumn {
  enum class Type { kText, kBigint, kBoolean, kNumeric, kJsonb, kTextArray };
  std::string name;
  Type type = Type::kText;
  bool not_null = false;
  std::optional<std::string> default_value;

  static std::string RandomValue(Type type, Dice& dice);
};

// A random table (and one that counts) with a mapping of random events into it, in the words of
// SQL, of a .proto file and of a group's file. Test code.
struct RandomSchema {
  struct EventType {
    PlainEvent::Kind kind;
    std::vector<size_t> columns;
  };

  RandomSchema(int number, Dice& dice);

  std::string Table() const;
  std::string Ddl() const;
  std::string Proto() const;  // empty when the case is plain JSON
  std::string Yaml() const;
  std::string Query() const;  // all rows as text

  int number;
  bool protobuf = false;
  int keys = 1;
  bool uuid_key = false;
  bool soft = false;
  bool counts = false;
  bool owned = false;  // rows remember their aggregate
  std::vector<RandomColumn> columns;
  std::vector<EventType> types;

 private:
  void AddColumns(Dice& dice);
  void AddTypes(bool deletes, Dice& dice);
};

}  // namespace lockstep::projections
