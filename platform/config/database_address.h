#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// A database address (libpq's URI or key=value form) as it may be shown: passwords as ***.
std::string MaskPassword(std::string_view address);

// The same without them: what an operator types, with the password from ~/.pgpass or PGPASSWORD.
std::string WithoutPassword(std::string_view address);

// A library's error text about `address`, fit to be shown. It names host, user and database; and of
// a password that was not percent-encoded it takes parts for any of these.
std::string ScrubPassword(std::string_view text, std::string_view address);

// Overwrites the passwords of addresses among a program's arguments, which every user of the
// machine can read in the process list. Call it once the arguments are copied.
void HidePasswords(int argc, char** argv);

}  // namespace lockstep
