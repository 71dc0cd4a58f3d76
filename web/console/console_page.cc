#include "web/console/console_page.h"

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "console_files.h"

namespace lockstep::web {
namespace {

std::string ContentType(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  return name.ends_with(".css") ? "text/css; charset=utf-8" : "text/javascript; charset=utf-8";
}

}  // namespace

void ServeConsole(HttpServer& http, std::function<nlohmann::json()> document) {
  for (const console_files::EmbeddedFile& file : console_files::Files()) {
    const std::string name(file.name.substr(file.name.rfind('/') + 1));
    const HttpResponse response{.content_type = ContentType(name), .body = std::string(file.text)};
    const auto answer = [response](const HttpRequest&) { return response; };
    http.Handle("/" + name, answer);
    if (name == "console.html") http.Handle("/", answer);
  }
  http.Handle("/api/console", [document = std::move(document)](const HttpRequest&) -> HttpResponse {
    return {
        .content_type = "application/json; charset=utf-8",
        .body = document().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"};
  });
}

}  // namespace lockstep::web
