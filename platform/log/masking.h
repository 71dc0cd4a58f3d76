#pragma once

#include <string_view>

namespace lockstep {

class ConfigSection;

inline constexpr char kMasked[] = "***";

// Whether logs, status page and API of this process show *** in place of what says whose events
// they are: ordering keys, aggregates and tenants, and the texts about single events, which may
// quote them. One switch (`mask_keys`), set at the start. Safe from any thread.
void MaskKeys(bool mask);
bool KeysAreMasked();
// A text that may quote a key or a value of an event, or *** where that is masked.
std::string_view UnlessMasked(std::string_view text);
// Whether the value of a field so called, in a line or a document, is one of these.
bool TellsAKey(std::string_view name);

void BindMasking(ConfigSection& config, bool* mask);

}  // namespace lockstep
