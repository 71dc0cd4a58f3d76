#include "idempotency/store.h"

#include <array>

namespace lockstep::idempotency {
namespace {

struct Words {
  std::string_view name, code;
};
constexpr std::array<Words, 5> kWords = {{{"go", ""},
                                          {"done", ""},
                                          {"busy", "TX.IDEMPOTENT_BUSY"},
                                          {"failed", "TX.IDEMPOTENT_LAST_FAILED"},
                                          {"conflict", "STORAGE.CONFLICT"}}};

}  // namespace

std::string_view Name(Outcome outcome) { return kWords.at(static_cast<size_t>(outcome)).name; }
std::string_view Code(Outcome outcome) { return kWords.at(static_cast<size_t>(outcome)).code; }

}  // namespace lockstep::idempotency
