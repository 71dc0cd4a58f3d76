#include "platform/config/database_address.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <regex>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "platform/config/config.h"
#include "platform/status.h"
#include "platform/text.h"

namespace lockstep {
namespace {

constexpr std::string_view kFileKey = "password_file";

bool IsPassword(std::string_view key) { return key.ends_with("password") || key == kFileKey; }

bool IsUri(std::string_view address) {
  return address.starts_with("postgres://") || address.starts_with("postgresql://");
}

// For the query of a URI, and for a value in quotes: a group's name may hold anything.
std::string PercentEncoded(std::string_view value) {
  std::string encoded;
  for (const char c : value) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
    encoded += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return encoded;
}
std::string PercentDecoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = text.data() + i + 1;
    const bool encoded = text[i] == '%' && i + 2 < text.size() &&
                         std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    decoded += encoded ? static_cast<char>(byte) : text[i];
    if (encoded) i += 2;
  }
  return decoded;
}
std::string Escaped(std::string_view value) {
  return absl::StrReplaceAll(std::string(value), {{"'", "\\'"}, {"\\", "\\\\"}});
}

// Of a connection string: the host behind `host=`, or between user and port of an address.
std::string HostOf(const std::string& address) {
  static const std::regex kHost(
      R"(^postgres(?:ql)?://(?:[^/?]*@)?(\[[^\]]*\]|[^:/?]*)|(?:^| )host=([^ ]*))");
  std::smatch found;
  return std::regex_search(address, found, kHost) ? found.str(1) + found.str(2) : "";
}

// What to do with passwords, and where they are noted.
struct Passwords {
  bool mask = true;  // false = leave them out
  std::vector<std::string> found;
};

// a=b&password=c
std::string UriQuery(std::string_view query, Passwords& passwords) {
  std::string kept;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const std::string_view key = pair.substr(0, pair.find('='));
    if (IsPassword(key)) passwords.found.emplace_back(pair.substr(key.size()));
    if (IsPassword(key) && !passwords.mask) continue;
    if (!kept.empty()) kept += '&';
    kept += IsPassword(key) ? std::string(key) + "=***" : std::string(pair);
  }
  return kept;
}

// Where the query may begin at the earliest. libpq takes all up to an @ that comes before any slash
// as user and password, a ? too. A port that is no number is a password with a slash in it.
size_t BehindUser(std::string_view rest) {
  const size_t stop = std::min(rest.find_first_of("@/"), rest.size());
  if (stop < rest.size() && rest[stop] == '@') return stop;
  const size_t colon = rest.substr(0, stop).rfind(':');
  if (colon == std::string_view::npos) return 0;
  const std::string_view port = rest.substr(colon + 1, stop - colon - 1);
  if (port.find_first_not_of("0123456789") == std::string_view::npos) return 0;
  const size_t at = rest.rfind('@');
  return at == std::string_view::npos ? 0 : at;
}

std::string Uri(std::string_view address, size_t host, Passwords& passwords) {
  const std::string_view rest = address.substr(host);
  const size_t mark = rest.find('?', BehindUser(rest));
  std::string_view front = rest.substr(0, mark);
  std::string shown(address.substr(0, host));
  // The last @: a password may hold one that nobody escaped.
  if (const size_t at = front.rfind('@'); at != std::string_view::npos) {
    const std::string_view user = front.substr(0, std::min(at, front.find(':')));
    shown += user;
    if (user.size() < at) {
      passwords.found.emplace_back(front.substr(user.size() + 1, at - user.size() - 1));
      if (passwords.mask) shown += ":***";
    }
    front.remove_prefix(at);
  }
  shown += front;
  if (mark != std::string_view::npos) {
    const std::string query = UriQuery(rest.substr(mark + 1), passwords);
    if (!query.empty()) shown += "?" + query;
  }
  return shown;
}

// host=h password='it''s' user=u; values may be quoted and hold backslashes.
std::string Pairs(std::string_view address, Passwords& passwords) {
  std::string shown;
  size_t at = 0;
  while (at < address.size()) {
    const size_t start = address.find_first_not_of(' ', at);
    if (start == std::string_view::npos) break;
    const size_t equals = address.find('=', start);
    std::string_view key = address.substr(start, std::min(equals, address.size()) - start);
    key = key.substr(0, key.find_last_not_of(' ') + 1);
    // Words that belong to no key: the rest of a password with a space that nobody quoted.
    const size_t words = equals == std::string_view::npos ? key.size() : key.find_last_of(' ') + 1;
    if (words > 0) {
      passwords.found.emplace_back(key.substr(0, words));
      if (passwords.mask) shown += " ***";
      key.remove_prefix(words);
    }
    if (equals == std::string_view::npos) break;
    size_t end = std::min(address.find_first_not_of(' ', equals + 1), address.size());
    const bool quoted = end < address.size() && address[end] == '\'';
    if (quoted) ++end;
    for (; end < address.size() && address[end] != (quoted ? '\'' : ' '); ++end) {
      if (address[end] == '\\') ++end;
    }
    if (quoted) ++end;
    end = std::min(end, address.size());
    if (IsPassword(key)) passwords.found.emplace_back(address.substr(equals + 1, end - equals - 1));
    if (!IsPassword(key) || passwords.mask) {
      if (!shown.empty()) shown += ' ';
      shown += IsPassword(key) ? std::string(key) + "=***"
                               : std::string(address.substr(start + words, end - start - words));
    }
    at = end;
  }
  return shown;
}

std::string Show(std::string_view address, Passwords& passwords) {
  for (const std::string_view scheme : {"postgresql://", "postgres://"}) {
    if (address.starts_with(scheme)) return Uri(address, scheme.size(), passwords);
  }
  if (address.find('=') == std::string_view::npos) return std::string(address);
  return Pairs(address, passwords);
}

// The parts into which a password falls that was not percent-encoded, as libpq may name them.
std::vector<std::string> PiecesOf(const std::vector<std::string>& passwords) {
  std::vector<std::string> pieces = passwords;
  for (const std::string& password : passwords) {
    for (const auto piece : absl::StrSplit(password, absl::ByAnyChar("/@:?#&=%\"'\\ []"))) {
      if (piece.size() > 1) pieces.emplace_back(piece);
    }
  }
  return pieces;
}

// A part of a password, or something with a part of one in it.
bool IsRelated(std::string_view text, const std::vector<std::string>& pieces) {
  return std::any_of(pieces.begin(), pieces.end(), [&](const std::string& piece) {
    return !piece.empty() && !text.empty() &&
           (text.find(piece) != std::string_view::npos || piece.find(text) != std::string::npos);
  });
}

}  // namespace

std::string MaskPassword(std::string_view address) {
  Passwords passwords{.mask = true};
  return Show(address, passwords);
}

std::string WithoutPassword(std::string_view address) {
  Passwords passwords{.mask = false};
  return Show(address, passwords);
}

void AddParameter(std::string& address, std::string_view key, std::string_view value) {
  const std::string given = fmt::format("{}=", key);
  for (size_t at = address.find(given); at != std::string::npos; at = address.find(given, at + 1)) {
    // sslpassword is no password.
    if (at == 0 || std::string_view(" ?&").find(address[at - 1]) != std::string_view::npos) return;
  }
  if (!IsUri(address)) {
    address += fmt::format(" {}='{}'", key, Escaped(value));
    return;
  }
  // A password may hold a ?, which libpq allows: the query begins behind the @.
  const size_t host = address.find_first_of("@/", address.find("://") + 3);
  const bool behind_user = host != std::string::npos && address[host] == '@';
  const bool first = address.find('?', behind_user ? host : 0) == std::string::npos;
  address += fmt::format("{}{}={}", first ? '?' : '&', key, PercentEncoded(value));
}

std::string WithPasswordFile(std::string_view address, std::string_view file) {
  std::string with(address);
  AddParameter(with, kFileKey, PercentEncoded(file));  // a value without quotes and blanks
  return with;
}

absl::StatusOr<std::string> ReadPasswordFile(std::string_view address) {
  // WithPasswordFile has put it last.
  const size_t at = address.rfind(fmt::format("{}=", kFileKey));
  if (at == std::string_view::npos) return std::string(address);
  std::string_view value = address.substr(at + kFileKey.size() + 1);
  std::string file = PercentDecoded(value);
  if (IsUri(address)) {
    file = PercentDecoded(file);
  } else {
    file = file.substr(1, file.size() - 2);  // the quotes
  }
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file));
  std::string with(address.substr(0, at - 1));  // with the separator before it
  // A file ends with a newline that is not the password's.
  AddParameter(with, "password", text.substr(0, text.find_last_not_of("\r\n") + 1));
  return with;
}

bool IsLocalDatabase(const std::string& address) {
  static const std::regex kLocal(R"(|localhost|::1|\[::1\]|127\..*|/.*|%2[Ff].*)");
  return std::regex_match(HostOf(address), kLocal);
}

std::string UncheckedServer(const std::string& address) {
  if (IsLocalDatabase(address)) return "";
  static const std::regex kMode("[?& ]sslmode=([a-z-]+)");
  std::smatch found;
  const char* const env = std::getenv("PGSSLMODE");
  const std::string mode = std::regex_search(address, found, kMode) ? found.str(1)
                           : env != nullptr                         ? env
                                                                    : "prefer";
  if (mode == "verify-full") return "";
  return fmt::format(
      "the database is on another machine and sslmode is {}: another server could take its place, "
      "or somebody read along; use sslmode=verify-full with sslrootcert",
      mode);
}

void BindDatabase(ConfigSection& config, std::string* address, std::string_view help,
                  const std::string& name) {
  std::string file;
  config.Secret(name, address, help);
  config.Key(name + "_password_file", &file,
             "a file that has the password, read for each connection; in place of one in the "
             "address");
  if (file.empty()) return;
  if (std::filesystem::path(file).is_relative()) {
    file = (std::filesystem::path(config.Directory()) / file).string();
  }
  *address = WithPasswordFile(*address, file);
}

std::string ScrubPassword(std::string_view text, std::string_view address) {
  Passwords passwords{.mask = false};
  const std::string open = Show(address, passwords);
  if (passwords.found.empty()) return std::string(text);
  const std::vector<std::string> pieces = PiecesOf(passwords.found);
  std::string clean;
  bool quoted = false;
  while (true) {
    const size_t end = std::min(text.find('"'), text.size());
    std::string part(text.substr(0, end));
    if (quoted && open.find(part) == std::string::npos && IsRelated(part, pieces)) part = "***";
    for (const std::string& piece : pieces) {
      if (piece.size() > 2 && open.find(piece) == std::string::npos) {
        absl::StrReplaceAll({{piece, "***"}}, &part);
      }
    }
    clean += part;
    if (end == text.size()) return clean;
    clean += '"';
    quoted = !quoted;
    text.remove_prefix(end + 1);
  }
}

void HidePasswords(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    char* value = argv[i];
    if (std::strncmp(value, "--", 2) == 0) {
      value = std::strchr(value, '=');
      if (value == nullptr) continue;
      ++value;
    }
    const size_t size = std::strlen(value);
    const std::string shown = MaskPassword(value);
    if (shown == value) continue;
    std::memset(value, 0, size);
    std::memcpy(value, shown.data(), std::min(size, shown.size()));
  }
}

}  // namespace lockstep
