#pragma once

#include <string>
#include <vector>

namespace lockstep::observability {

// Opens the page in headless Chromium and fails the test unless every text is visible there within
// a few seconds and the console has no error. Says so and looks at nothing where Chromium, node or
// npm is missing. With LOCKSTEP_SHOTS=DIR it leaves a screenshot there under `name`.
void LookAtPage(const std::string& url, const std::string& name,
                const std::vector<std::string>& texts);

}  // namespace lockstep::observability
