#pragma once

#include <string>

namespace lockstep::bench {

// Requests a second of a bare libcurl-multi loop: POSTs of so many bytes, `at_once` under way, with
// connections that are kept; nothing else is done.
double BareCurl(const std::string& url, int requests, int at_once, size_t bytes);

}  // namespace lockstep::bench
