#include "projections/declare/fingerprint.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>

namespace lockstep::projections {
namespace {

constexpr size_t kBytes = 8;  // of the digest that are kept

// With its length before each text, so that no two documents read the same.
std::string Canonical(const YAML::Node& node) {
  if (!node.IsDefined() || node.IsNull()) return "~";
  if (node.IsScalar()) return fmt::format("{}:{}", node.Scalar().size(), node.Scalar());
  std::vector<std::string> parts;
  if (node.IsMap()) {
    for (const auto& item : node) parts.push_back(Canonical(item.first) + Canonical(item.second));
    std::ranges::sort(parts);
  } else {
    for (const auto& item : node) parts.push_back(Canonical(item));
  }
  return fmt::format("{}{}({})", node.IsMap() ? 'm' : 'l', parts.size(), fmt::join(parts, ""));
}

}  // namespace

void Fingerprint::Add(const YAML::Node& node) { Add(Canonical(node)); }

void Fingerprint::Add(std::string_view bytes) {
  text_ += fmt::format("{}:{}", bytes.size(), bytes);
}

std::string Fingerprint::Hex() const {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  EVP_Digest(text_.data(), text_.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  std::string hex;
  for (size_t i = 0; i < kBytes; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

}  // namespace lockstep::projections
