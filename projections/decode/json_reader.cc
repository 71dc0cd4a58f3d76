#include "projections/decode/json_reader.h"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "platform/status.h"

namespace lockstep::projections {

namespace {
constexpr int kMaxDepth = 200;
}

// Follows the parser through the document, with the tree of wanted paths beside it.
class JsonSink : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonSink(const JsonReader& reader, std::string* text, std::vector<JsonValue>* values)
      : reader_(reader), text_(*text), values_(*values) {}

  bool null() override {
    const bool going_on = Scalar(JsonValue::Type::kNull, "null");
    // What is null has null members: a merge is told so, rather than nothing.
    if (!levels_.empty() && !levels_.back().array && child_ > 0) {
      MarkMembers(child_, JsonValue::Type::kNull);
    }
    return going_on;
  }
  bool boolean(bool value) override {
    return Scalar(JsonValue::Type::kBool, value ? "true" : "false");
  }
  bool number_integer(number_integer_t value) override { return Number(fmt::format_int(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Number(fmt::format_int(value)); }
  bool number_float(number_float_t, const string_t& text) override {
    return Scalar(JsonValue::Type::kNumber, text);
  }
  bool string(string_t& value) override { return Scalar(JsonValue::Type::kString, value); }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override { return Open('{'); }
  bool start_array(std::size_t) override { return Open('['); }
  bool end_object() override { return Close('}'); }
  bool end_array() override { return Close(']'); }

  bool key(string_t& name) override {
    Level& level = levels_.back();
    child_ = level.node < 0 ? -1 : reader_.Find(level.node, name);
    for (Capture& capture : captures_) {
      if (level.size > 0) capture.text += ',';
      AppendJsonString(name, &capture.text);
      capture.text += ':';
    }
    ++level.size;
    return true;
  }

  // The parser's own words would quote the document.
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    error_ = fmt::format("the payload is not valid JSON (at byte {})", position);
    return false;
  }

  std::string error_;

 private:
  struct Level {
    int node;  // in the tree of wanted paths, or -1
    bool array;
    int size;  // members so far
  };
  struct Capture {
    int slot;
    size_t depth;
    std::string text;
  };

  // Which node of the wanted tree the value that begins now stands for.
  int Begin() {
    if (levels_.empty()) return 0;
    Level& level = levels_.back();
    if (!level.array) return child_;
    if (level.size++ > 0) {
      for (Capture& capture : captures_) capture.text += ',';
    }
    return -1;
  }

  bool Number(const fmt::format_int& value) {
    return Scalar(JsonValue::Type::kNumber, {value.data(), value.size()});
  }

  bool Scalar(JsonValue::Type type, std::string_view text) {
    const int node = Begin();
    if (levels_.empty()) {
      error_ = "the payload is JSON, but not an object";
      return false;
    }
    for (Capture& capture : captures_) {
      if (type == JsonValue::Type::kString) {
        AppendJsonString(text, &capture.text);
      } else {
        capture.text += text;
      }
    }
    if (node >= 0 && reader_.nodes_[node].slot >= 0) {
      Store(reader_.nodes_[node].slot, type, text);
    }
    return true;
  }

  bool Open(char bracket) {
    const int node = Begin();
    if (levels_.empty() && bracket == '[') {
      error_ = "the payload is JSON, but not an object";
      return false;
    }
    if (levels_.size() >= kMaxDepth) {
      error_ = "the payload is JSON nested too deeply";
      return false;
    }
    if (node > 0 && reader_.nodes_[node].slot >= 0) {
      captures_.push_back({reader_.nodes_[node].slot, levels_.size(), {}});
    }
    if (node > 0 && bracket == '{') {
      MarkMembers(node, JsonValue::Type::kMissing);  // of a name that stands twice, the last counts
      if (reader_.nodes_[node].presence_slot >= 0) {
        Store(reader_.nodes_[node].presence_slot, JsonValue::Type::kJson, {});
      }
    }
    for (Capture& capture : captures_) capture.text += bracket;
    levels_.push_back({bracket == '{' ? node : -1, bracket == '[', 0});
    return true;
  }

  bool Close(char bracket) {
    levels_.pop_back();
    for (Capture& capture : captures_) capture.text += bracket;
    if (!captures_.empty() && captures_.back().depth == levels_.size()) {
      Store(captures_.back().slot, JsonValue::Type::kJson, captures_.back().text);
      captures_.pop_back();
    }
    return true;
  }

  void MarkMembers(int node, JsonValue::Type type) {
    for (const auto& child : reader_.nodes_[node].children) {
      const JsonReader::Node& member = reader_.nodes_[child.node];
      if (member.slot >= 0) values_[member.slot] = {type};
      if (member.presence_slot >= 0) values_[member.presence_slot] = {};
      MarkMembers(child.node, type);
    }
  }

  void Store(int slot, JsonValue::Type type, std::string_view text) {
    values_[slot] = {type, static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(text.size())};
    text_ += text;
  }

  const JsonReader& reader_;
  std::string& text_;
  std::vector<JsonValue>& values_;
  std::vector<Level> levels_;
  std::vector<Capture> captures_;
  int child_ = -1;  // of the key that was read last
};

int JsonReader::Find(int node, std::string_view name) const {
  for (const Child& child : nodes_[node].children) {
    if (child.name == name) return child.node;
  }
  return -1;
}

int JsonReader::AddSlot(const std::vector<std::vector<std::string>>& path, int Node::*slot) {
  int node = 0;
  for (const std::vector<std::string>& names : path) {
    int next = Find(node, names.front());
    if (next < 0) {
      next = static_cast<int>(nodes_.size());
      nodes_.emplace_back();
    }
    for (const std::string& name : names) {
      if (Find(node, name) < 0) nodes_[node].children.push_back({name, next});
    }
    node = next;
  }
  int& found = nodes_[node].*slot;
  if (found < 0) found = slots_++;
  return found;
}

absl::Status JsonReader::Read(std::string_view document, std::string* text,
                              std::vector<JsonValue>* values) const {
  JsonSink sink(*this, text, values);
  const bool read = nlohmann::json::sax_parse(document.begin(), document.end(), &sink);
  if (read) return absl::OkStatus();
  return InvalidArgument("{}", sink.error_.empty() ? "the payload is not valid JSON" : sink.error_);
}

}  // namespace lockstep::projections
