#include "platform/http_client/signer.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <chrono>
#include <iterator>
#include <sstream>

#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::http {
namespace {

absl::StatusOr<std::vector<std::string>> ParseSecrets(const std::string& text) {
  std::vector<std::string> secrets;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::string_view secret = Trim(line);
    if (secret.empty() || secret.front() == '#') continue;
    if (secret.size() < Signer::kShortestSecret) {
      return InvalidArgument(
          "a secret has fewer than {} characters; make one with openssl rand -hex 32",
          Signer::kShortestSecret);
    }
    secrets.emplace_back(secret);
  }
  if (secrets.empty())
    return InvalidArgument("there is no secret in it: one a line, the newest first");
  if (secrets.size() > Signer::kMostSecrets) {
    return InvalidArgument("it has {} secrets; {} at most sign at a time, take old ones away",
                           secrets.size(), Signer::kMostSecrets);
  }
  return secrets;
}

}  // namespace

std::string Hmac(std::string_view secret, int64_t seconds, std::string_view id,
                 std::string_view body) {
  const auto bytes = [](std::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
  };
  const std::string head = fmt::format("{}.{}.", seconds, id);
  const std::unique_ptr<EVP_MAC, decltype(&EVP_MAC_free)> mac(
      EVP_MAC_fetch(nullptr, "HMAC", nullptr), EVP_MAC_free);
  const std::unique_ptr<EVP_MAC_CTX, decltype(&EVP_MAC_CTX_free)> context(
      EVP_MAC_CTX_new(mac.get()), EVP_MAC_CTX_free);
  std::array<char, 7> digest{"SHA256"};
  const std::array<OSSL_PARAM, 2> parameters{
      OSSL_PARAM_construct_utf8_string("digest", digest.data(), 0), OSSL_PARAM_construct_end()};
  std::array<unsigned char, EVP_MAX_MD_SIZE> sum{};
  size_t size = 0;
  if (EVP_MAC_init(context.get(), bytes(secret), secret.size(), parameters.data()) != 1 ||
      EVP_MAC_update(context.get(), bytes(head), head.size()) != 1 ||
      EVP_MAC_update(context.get(), bytes(body), body.size()) != 1 ||
      EVP_MAC_final(context.get(), sum.data(), &size, sum.size()) != 1) {
    return "";
  }
  std::string hex;
  hex.reserve(2 * size);
  for (size_t i = 0; i < size; ++i) fmt::format_to(std::back_inserter(hex), "{:02x}", sum[i]);
  return hex;
}

absl::StatusOr<std::unique_ptr<Signer>> Signer::Open(const std::string& secret_file,
                                                     const Clock& clock) {
  ASSIGN_OR_RETURN(auto secrets, WatchedFile<Secrets>::Open(secret_file, ParseSecrets));
  return std::unique_ptr<Signer>(new Signer(std::move(secrets), clock));
}

std::string Signer::Header(std::string_view id, std::string_view body) {
  const int64_t seconds = std::chrono::system_clock::to_time_t(clock_.Now());
  std::string header = fmt::format("Lockstep-Signature: t={}", seconds);
  for (const std::string& secret : *secrets_->Get()) {
    header += ",v1=";
    header += Hmac(secret, seconds, id, body);
  }
  return header;
}

}  // namespace lockstep::http
