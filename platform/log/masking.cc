#include "platform/log/masking.h"

#include <algorithm>
#include <atomic>
#include <iterator>

#include "platform/config/config.h"

namespace lockstep {
namespace {

std::atomic<bool> g_mask_keys = false;

constexpr std::string_view kKeyFields[] = {
    "key",    "ordering_key", "aggregate", "aggregate_id", "aggregate_key",
    "tenant", "tenant_id",    "reason",    "why",          "last_error"};

}  // namespace

void MaskKeys(bool mask) { g_mask_keys = mask; }
bool KeysAreMasked() { return g_mask_keys; }

std::string_view UnlessMasked(std::string_view text) { return g_mask_keys ? kMasked : text; }

bool TellsAKey(std::string_view name) {
  return std::ranges::find(kKeyFields, name) != std::end(kKeyFields);
}

void BindMasking(ConfigSection& config, bool* mask) {
  config.Key("mask_keys", mask,
             "*** in place of ordering keys, aggregates and tenants in logs, page and API");
}

}  // namespace lockstep
