#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace lockstep {

class ConfigSection;

// A database address (libpq's URI or key=value form) as it may be shown: passwords as ***.
std::string MaskPassword(std::string_view address);

// The same without them: what an operator types, with the password from ~/.pgpass or PGPASSWORD.
std::string WithoutPassword(std::string_view address);

// Adds a parameter, unless the address has it: the user's word wins.
void AddParameter(std::string& address, std::string_view key, std::string_view value);

// The same address with the password to be read from a file, anew for each connection, so that it
// may change: ReadPasswordFile puts it in.
std::string WithPasswordFile(std::string_view address, std::string_view file);
absl::StatusOr<std::string> ReadPasswordFile(std::string_view address);

// Without a host libpq uses a socket; a host with a slash is the socket's directory.
bool IsLocalDatabase(const std::string& address);
// A sentence about an address under which another server could answer and nobody would notice: it
// is not on this machine, and sslmode is below verify-full. Empty = there is nothing to say.
std::string UncheckedServer(const std::string& address);

// The keys `database` and `database_password_file`, or of another name.
void BindDatabase(ConfigSection& config, std::string* address, std::string_view help,
                  const std::string& name = "database");

// A library's error text about `address`, fit to be shown. It names host, user and database; and of
// a password that was not percent-encoded it takes parts for any of these.
std::string ScrubPassword(std::string_view text, std::string_view address);

// Overwrites the passwords of addresses among a program's arguments, which every user of the
// machine can read in the process list. Call it once the arguments are copied.
void HidePasswords(int argc, char** argv);

}  // namespace lockstep
