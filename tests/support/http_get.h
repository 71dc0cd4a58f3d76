#pragma once

#include <string>

namespace lockstep::testing {

// The status and the body of http://127.0.0.1:PORT/PATH, as "200 text"; empty when nobody answers.
std::string HttpGet(const std::string& url);

}  // namespace lockstep::testing
