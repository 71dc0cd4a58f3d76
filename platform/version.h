#pragma once

namespace lockstep {
inline constexpr char kVersion[] = "0.1.0";
}  // namespace lockstep
