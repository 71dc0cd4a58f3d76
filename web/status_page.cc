#include "web/status_page.h"

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "page_files.h"
#include "platform/duration.h"
#include "platform/log/masking.h"
#include "web/api_views.h"
#include "web/attention.h"
#include "web/document.h"

namespace lockstep::web {
namespace {

using nlohmann::json;

std::string ContentType(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  return "text/javascript; charset=utf-8";
}

std::string Text(const json& document) {
  return document.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

// Everything that a request can ask for, as of one moment; texts are made once.
struct StatusPage::Answers {
  json document;
  std::map<std::string, std::string> texts;  // by path; the dead letters depend on the query
};

StatusPage::StatusPage(HttpServer& http, Snapshot snapshot, Millis every)
    : snapshot_(std::move(snapshot)), ticker_(every, [this] { Refresh(); }) {
  for (const page_files::EmbeddedFile& file : page_files::Files()) {
    const std::string name(file.name.substr(file.name.rfind('/') + 1));
    const HttpResponse response{.content_type = ContentType(name), .body = std::string(file.text)};
    const auto answer = [this, response](const HttpRequest&) {
      last_request_ = Clock::System().Steady();
      return response;
    };
    http.Handle("/" + name, answer);
    if (name == "index.html") http.Handle("/", answer);
  }
  for (const char* path :
       {"/api/status", "/api/lag", "/api/offsets", "/api/offsets/export", "/api/dead-letters"}) {
    http.Handle(path, [this](const HttpRequest& request) -> HttpResponse {
      last_request_ = Clock::System().Steady();
      const std::shared_ptr<const Answers> answers = Current();
      if (answers == nullptr) return {.status = 503, .body = "starting; ask again in a second\n"};
      const auto found = answers->texts.find(request.path);
      return {.content_type = "application/json; charset=utf-8",
              .body = found != answers->texts.end()
                          ? found->second
                          : Text(DeadLettersView(answers->document, request.query))};
    });
  }
}

bool StatusPage::AskedWithin(Millis time) const {
  const SteadyTime last = last_request_;
  return last != SteadyTime{} && Clock::System().Steady() - last <= time;
}

std::shared_ptr<const StatusPage::Answers> StatusPage::Current() const {
  const std::scoped_lock lock(mu_);
  return answers_;
}

void StatusPage::Refresh() {
  auto answers = std::make_shared<Answers>();
  json& document = answers->document;
  document = snapshot_();
  if (KeysAreMasked()) Mask(document);
  document["now"] = FormatTimestamp(Clock::System().Now());
  document["attention"] = Attention(document);
  answers->texts = {{"/api/status", Text(document)},
                    {"/api/lag", Text(LagView(document))},
                    {"/api/offsets", Text(OffsetsView(document))},
                    {"/api/offsets/export", Text(OffsetsExport(document))}};
  const std::scoped_lock lock(mu_);
  answers_ = std::move(answers);
}

}  // namespace lockstep::web
