#include "sagas/definition/request_template.h"

#include <algorithm>

#include "platform/http_client/url.h"
#include "platform/status.h"
#include "platform/text.h"
#include "sagas/definition/canonical.h"

namespace lockstep::sagas {
namespace {

absl::Status Missing(const Path& path) {
  return NotFound(
      "{} has no value in this saga; end the path with ? if it may be missing, and register the "
      "next version",
      path.text());
}

// Builds the request; counts what it comes to.
class Filler {
 public:
  explicit Filler(const Json& context) : context_(context) {}

  absl::StatusOr<Json> Fill(const Json& part, int depth) {
    if (depth > kMaxTemplateDepth) {
      return InvalidArgument("the request's template is deeper than {} levels", kMaxTemplateDepth);
    }
    if (part.is_object()) {
      Json map = Json::object();
      auto& members = map.get_ref<Json::object_t&>();
      for (const auto& item : part.items()) {
        RETURN_IF_ERROR(Add(item.key().size() + 4));
        ASSIGN_OR_RETURN(Json value, Fill(item.value(), depth + 1));
        members.emplace_back(item.key(), std::move(value));
      }
      return map;
    }
    if (part.is_array()) {
      Json list = Json::array();
      for (const Json& item : part) {
        RETURN_IF_ERROR(Add(1));
        ASSIGN_OR_RETURN(Json value, Fill(item, depth + 1));
        list.push_back(std::move(value));
      }
      return list;
    }
    if (!part.is_string()) return part;
    const auto& text = part.get_ref<const std::string&>();
    if (text.starts_with("$$.")) return Json(text.substr(1));
    if (!IsPath(text)) {
      RETURN_IF_ERROR(Add(text.size() + 2));
      return part;
    }
    ASSIGN_OR_RETURN(const Path path, Path::Parse(text));
    const Json* value = path.Find(context_);
    if (value == nullptr) {
      if (!path.optional()) return Missing(path);
      return Json();
    }
    return Copy(*value, path.text());
  }

  absl::StatusOr<Json> Copy(const Json& value, std::string_view path) {
    if (!DepthWithin(value, kMaxValueDepth)) {
      return InvalidArgument("{} is deeper than {} levels", path, kMaxValueDepth);
    }
    RETURN_IF_ERROR(Add(ApproximateSize(value, kMaxRequestBytes)));
    return value;
  }

 private:
  absl::Status Add(size_t bytes) {
    bytes_ += bytes;
    if (bytes_ <= kMaxRequestBytes) return absl::OkStatus();
    return InvalidArgument("the request has more than {} KiB; pass on only what is needed",
                           kMaxRequestBytes >> 10);
  }

  const Json& context_;
  size_t bytes_ = 0;
};

// Calls `literal` with what stands between placeholders and `path` with each of those.
template <typename Literal, typename Placeholder>
absl::Status WalkUrl(std::string_view url, Literal literal, Placeholder placeholder) {
  while (!url.empty()) {
    const size_t brace = url.find_first_of("{}");
    literal(url.substr(0, brace));
    if (brace == std::string_view::npos) return absl::OkStatus();
    url.remove_prefix(brace);
    if (!url.starts_with("{$.")) {
      return InvalidArgument(
          "braces hold a path, as {{$.input.order_id}}; a brace itself is written %7B or %7D");
    }
    url.remove_prefix(1);
    ASSIGN_OR_RETURN(const Path path, Path::Take(&url));
    if (!url.starts_with('}')) {
      return InvalidArgument("a '}}' is missing after {}", path.text());
    }
    url.remove_prefix(1);
    RETURN_IF_ERROR(placeholder(path));
  }
  return absl::OkStatus();
}

void Encode(std::string_view value, std::string* out) {
  for (const char c : value) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~';
    if (plain) {
      *out += c;
    } else {
      *out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
}

// A part of a path that means "here" or "up", which clients resolve before they send.
bool LeavesItsPlace(std::string_view url) {
  const size_t scheme = url.find("://");
  const size_t start = url.find('/', scheme == std::string_view::npos ? 0 : scheme + 3);
  if (start == std::string_view::npos) return false;
  std::string_view path = url.substr(start + 1);
  path = path.substr(0, path.find('?'));
  while (true) {
    const size_t end = path.find('/');
    std::string part(path.substr(0, end));
    for (size_t at = 0; at + 2 < part.size(); ++at) {
      if (part.compare(at, 2, "%2") == 0 && (part[at + 2] | 0x20) == 'e') part.replace(at, 3, ".");
    }
    if (part == "." || part == "..") return true;
    if (end == std::string_view::npos) return false;
    path.remove_prefix(end + 1);
  }
}

}  // namespace

absl::StatusOr<Json> FillRequest(const Json& request_template, const Json& context) {
  Filler filler(context);
  if (!request_template.is_null()) return filler.Fill(request_template, 0);
  const auto input = context.find("input");
  if (input == context.end()) return Json();
  return filler.Copy(*input, "$.input");
}

absl::StatusOr<std::string> FillUrl(const std::string& url, const Json& context) {
  std::string filled;
  RETURN_IF_ERROR(WalkUrl(
      url, [&](std::string_view text) { filled += text; },
      [&](const Path& path) -> absl::Status {
        const Json* value = path.Find(context);
        if (value == nullptr || value->is_null()) {
          return path.optional() ? absl::OkStatus() : Missing(path);
        }
        const std::string text = value->is_string()       ? value->get<std::string>()
                                 : value->is_structured() ? std::string()
                                                          : value->dump();
        if (value->is_structured() || text.empty()) {
          return InvalidArgument("{} is {}; an address takes a text, a number or a boolean",
                                 path.text(), value->is_structured() ? "a list or a map" : "empty");
        }
        if (text.size() > 1'024) {
          return InvalidArgument("{} has more than 1024 bytes, too long for an address",
                                 path.text());
        }
        Encode(text, &filled);
        return absl::OkStatus();
      }));
  if (LeavesItsPlace(filled)) {
    return InvalidArgument(
        "the address has a part '.' or '..' once its placeholders are filled; it would be another "
        "address");
  }
  // Its own words would quote values.
  if (!http::ParseUrl(filled).ok()) {
    return InvalidArgument(
        "the address is none, or has more than 2048 characters, once its placeholders are filled");
  }
  return filled;
}

absl::StatusOr<std::vector<Path>> PathsOfUrl(std::string_view url) {
  std::vector<Path> paths;
  RETURN_IF_ERROR(WalkUrl(
      url, [](std::string_view) {},
      [&](const Path& path) {
        paths.push_back(path);
        return absl::OkStatus();
      }));
  return paths;
}

}  // namespace lockstep::sagas
