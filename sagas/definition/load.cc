#include <charconv>
#include <map>
#include <tuple>

#include "platform/config/yaml.h"
#include "platform/status.h"
#include "platform/text.h"
#include "sagas/definition/canonical.h"
#include "sagas/definition/definition.h"
#include "sagas/definition/reader.h"

namespace lockstep::sagas {
namespace {

struct Place {
  int line = 0;  // 0: unknown
  int column = 0;
};

// YAML as JSON, and where each value stands. Plain scalars are null, booleans and numbers as JSON
// writes them; everything else is text (no `yes`, no 0x10, no .inf: what they mean depends on whom
// one asks).
class YamlReader {
 public:
  struct Complaint {
    Place place;
    std::string what;
  };

  Json Convert(const YAML::Node& node, const std::string& path, Place key) {
    Place place = Of(node);
    if (place.line == 0) place = key;
    values_[path] = place;
    keys_[path] = key.line == 0 ? place : key;
    if (node.IsMap()) return ConvertMap(node, path);
    if (node.IsSequence()) {
      Json list = Json::array();
      size_t index = 0;
      for (const auto& item : node) {
        list.push_back(Convert(item, fmt::format("{}/{}", path, index++), {}));
      }
      return list;
    }
    if (!node.IsDefined() || node.IsNull()) return {};
    return Scalar(node, place);
  }

  // Where what the mistake speaks of stands, or what it is part of.
  Place PlaceOf(const Mistake& mistake) const {
    const auto& places = mistake.at_key ? keys_ : values_;
    for (std::string path = mistake.path;;) {
      if (const auto found = places.find(path); found != places.end()) return found->second;
      if (path.empty()) return {};
      path.resize(path.rfind('/'));
    }
  }

  std::vector<Complaint> complaints;

 private:
  static Place Of(const YAML::Node& node) {
    if (!node.IsDefined() || node.Mark().is_null()) return {};
    return {node.Mark().line + 1, node.Mark().column + 1};
  }

  Json ConvertMap(const YAML::Node& node, const std::string& path) {
    Json map = Json::object();
    for (const auto& item : node) {
      const Place place = Of(item.first);
      if (!item.first.IsScalar()) {
        complaints.push_back({place, "a key is a plain text"});
        continue;
      }
      const std::string& key = item.first.Scalar();
      if (!Sound(key, place)) continue;
      if (map.contains(key)) {
        complaints.push_back(
            {place, fmt::format("key '{}' stands here twice; keep one", Truncate(key, 80))});
        continue;
      }
      map[key] = Convert(item.second, Below(path, key), place);
    }
    return map;
  }

  Json Scalar(const YAML::Node& node, Place place) {
    const std::string& text = node.Scalar();
    const std::string& tag = node.Tag();
    if (!Sound(text, place)) return text;
    if (tag == "!" || tag == "tag:yaml.org,2002:str") return text;  // in quotes
    if (!tag.empty() && tag != "?") {
      complaints.push_back(
          {place, fmt::format("tags such as {} are not read; leave it out", Truncate(tag, 80))});
      return {};
    }
    if (text == "true") return true;
    if (text == "false") return false;
    if (text == "null" || text == "~" || text.empty()) return {};
    const char first = text.front();
    if (first != '-' && (first < '0' || first > '9')) return text;
    const Json number = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (number.is_number()) return Canonical(number);
    double any = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), any);
    if (error == std::errc::result_out_of_range && end == text.data() + text.size()) {
      complaints.push_back({place, "a number too large for JSON; put it in quotes"});
    }
    return text;
  }

  bool Sound(const std::string& text, Place place) {
    if (ValidUtf8(text)) return true;
    complaints.push_back({place, "a text that is no UTF-8; save the file as UTF-8"});
    return false;
  }

  std::map<std::string, Place> values_;
  std::map<std::string, Place> keys_;
};

absl::StatusOr<Definition> Load(const std::string& file) {
  const auto root = LoadYaml(file);
  if (!root.ok()) {
    // What trips people up here.
    const std::string_view why = MessageOf(root.status());
    if (why.find(": not YAML: ") == std::string_view::npos) return root.status();
    return InvalidArgument(
        "{} (between {{ }} or [ ], a text that has ?, brackets or braces stands in quotes: "
        "'$.input.coupon?')",
        why);
  }
  YamlReader yaml;
  const Json json = yaml.Convert(*root, "", {1, 1});
  DefinitionReading reading = ReadDefinition(json);
  auto complaints = std::move(yaml.complaints);
  for (const Mistake& mistake : reading.mistakes) {
    complaints.push_back({yaml.PlaceOf(mistake), mistake.what});
  }
  if (complaints.empty()) return std::move(reading.definition);
  std::ranges::stable_sort(complaints, {}, [](const YamlReader::Complaint& complaint) {
    return std::tuple(complaint.place.line, complaint.place.column);
  });
  std::vector<std::string> lines;
  for (const auto& [place, what] : complaints) {
    lines.push_back(place.line == 0
                        ? fmt::format("{}: {}", file, what)
                        : fmt::format("{}:{}:{}: {}", file, place.line, place.column, what));
  }
  return InvalidArgument("{}", fmt::join(lines, "\n"));
}

}  // namespace

absl::StatusOr<Definition> LoadDefinition(const std::string& file) {
  try {
    return Load(file);
  } catch (const YAML::Exception& e) {  // a shape that no check foresaw
    return InvalidArgument("{}:{}:{}: {}", file, e.mark.line + 1, e.mark.column + 1, e.msg);
  }
}

}  // namespace lockstep::sagas
