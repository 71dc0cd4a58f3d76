#include "projections/testing/random_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "projections/testing/test_group.h"

namespace lockstep::projections {
namespace {

using Type = RandomColumn::Type;

void AppendVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    *out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *out += static_cast<char>(value);
}

void AppendBytes(int number, std::string_view bytes, std::string* out) {
  AppendVarint(static_cast<uint64_t>(number) << 3 | 2, out);
  AppendVarint(bytes.size(), out);
  *out += bytes;
}

std::vector<std::string> ArrayItems(const std::string& text) {  // of {a,b}
  std::vector<std::string> items;
  std::string item;
  for (const char c : text.substr(1)) {
    if (c == ',' || c == '}') {
      if (!item.empty()) items.push_back(item);
      item.clear();
    } else {
      item += c;
    }
  }
  return items;
}

std::vector<std::optional<std::string>> Defaults(const RandomSchema& schema) {
  std::vector<std::optional<std::string>> defaults;
  for (const RandomColumn& column : schema.columns) defaults.push_back(column.default_value);
  return defaults;
}

}  // namespace

RandomCase::RandomCase(uint64_t seed, int number, int streams)
    : dice_(seed),
      schema_(number, dice_),
      streams_(streams),
      newest_(static_cast<size_t>(streams)),
      snapshot_(static_cast<size_t>(streams)),
      left_(streams * 10),
      naive_(Defaults(schema_)) {}

std::vector<std::string> RandomCase::KeyParts(int stream) const {
  std::string first =
      schema_.uuid_key ? fmt::format("aBcdef00-0000-4000-8000-{:012}", stream / schema_.keys)
                       : fmt::format("k,\"{}\\ ({})", stream / schema_.keys, stream / schema_.keys);
  if (schema_.keys == 1) return {first};
  return {first, fmt::format("{}", stream % 2 - 1)};
}

std::string RandomCase::KeyLine(int stream) const {
  std::vector<std::string> parts = KeyParts(stream);
  if (schema_.uuid_key) {
    std::transform(parts[0].begin(), parts[0].end(), parts[0].begin(), ::tolower);
  }
  return fmt::format("{}", fmt::join(parts, "|"));
}

int RandomCase::SnapshotType() const {
  const auto replaces = [](const RandomSchema::EventType& type) {
    return type.kind == PlainEvent::Kind::kReplace;
  };
  const auto found = std::ranges::find_if(schema_.types, replaces);
  return schema_.counts || found == schema_.types.end()
             ? -1
             : static_cast<int>(found - schema_.types.begin());
}

RandomCase::Sent RandomCase::MakeEvent(int stream, int64_t version, bool stranger, bool snapshot) {
  const auto stored = naive_.rows().find(KeyLine(stream));
  const bool nothing = stored == naive_.rows().end() || stored->second.deleted;
  const int type_index =
      snapshot ? SnapshotType() : dice_.Pick(static_cast<int>(schema_.types.size()));
  const RandomSchema::EventType& type = schema_.types[static_cast<size_t>(type_index)];
  PlainEvent plain;
  plain.kind = type.kind;
  plain.key = KeyLine(stream);
  plain.version = version;
  plain.snapshot = snapshot;
  plain.overwrite = snapshot && dice_.Chance(20);
  int64_t& last_snapshot = snapshot_[static_cast<size_t>(stream)];
  plain.covered = !stranger && version <= last_snapshot;
  if (snapshot) last_snapshot = std::max(last_snapshot, version);
  if (schema_.owned) plain.owner = stranger ? "stranger" : fmt::format("s{}", stream);
  const bool proto = schema_.protobuf && dice_.Chance(50);
  for (const size_t column : type.columns) {
    const RandomColumn& c = schema_.columns[column];
    const bool must =
        c.not_null && !c.default_value && (nothing || plain.kind == PlainEvent::Kind::kReplace);
    if (!must && dice_.Chance(40)) continue;
    if (!proto && !c.not_null && dice_.Chance(15)) {
      plain.values[column] = std::nullopt;
    } else {
      plain.values[column] = RandomColumn::RandomValue(c.type, dice_);
    }
  }
  const int bucket = dice_.Pick(7);
  const int delta = dice_.Pick(21) - 10;
  Sent sent;
  sent.covered = plain.covered;
  sent.expected = naive_.Apply(plain);
  // Counting knows no versions: whatever the versioned table says, it counts.
  if (schema_.counts) {
    counted_[bucket] += delta;
    if (sent.expected == Outcome::kSuperseded) sent.expected = Outcome::kApplied;
  }
  const int packed = bucket * 100 + delta + 50;
  sent.event = projections::MakeEvent(
      fmt::format("E{}", type_index), stranger ? "stranger" : fmt::format("s{}", stream), version,
      proto ? EncodeProto(stream, plain, packed) : EncodeJson(stream, plain, packed),
      proto ? "application/protobuf" : "application/json");
  if (snapshot) sent.event.kind = envelope::EventKind::kSnapshot;
  sent.event.overwrite = plain.overwrite;
  return sent;
}

std::string RandomCase::EncodeJson(int stream, const PlainEvent& plain, int packed) {
  nlohmann::ordered_json json;
  const auto key = KeyParts(stream);
  json["k0"] = key[0];
  if (schema_.keys == 2) json["k1"] = std::stoi(key[1]);
  json["unknown"] = {{"c0", "not this one"}};
  json["bucket"] = packed / 100;
  json["delta"] = packed % 100 - 50;
  std::string text = json.dump();
  text.pop_back();
  for (const auto& [column, value] : plain.values) {
    const RandomColumn& c = schema_.columns[column];
    std::string cell = "null";
    if (value.has_value()) {
      const bool as_string =
          c.type == Type::kText ||
          (schema_.protobuf && (c.type == Type::kNumeric || c.type == Type::kJsonb)) ||
          (c.type == Type::kBigint && dice_.Chance(50));
      if (as_string) {
        cell = nlohmann::json(*value).dump();
      } else if (c.type == Type::kTextArray) {
        cell = nlohmann::json(ArrayItems(*value)).dump();
      } else {
        cell = *value;
      }
    }
    text += fmt::format(",\"{}\":{}", c.name, cell);
  }
  return text + "}";
}

std::string RandomCase::EncodeProto(int stream, const PlainEvent& plain, int packed) const {
  std::string out;
  const auto key = KeyParts(stream);
  AppendBytes(1, key[0], &out);
  const auto number = [&](int field, int64_t value) {
    AppendVarint(static_cast<uint64_t>(field) << 3, &out);
    AppendVarint(static_cast<uint64_t>(value), &out);
  };
  if (schema_.keys == 2) number(2, std::stoi(key[1]));
  number(3, packed / 100);
  number(4, packed % 100 - 50);
  number(99, 7);  // a field that the descriptors don't know passes
  for (const auto& [column, value] : plain.values) {
    const int field = 10 + static_cast<int>(column);
    switch (schema_.columns[column].type) {
      case Type::kBigint:
        number(field, std::stoll(*value));
        break;
      case Type::kBoolean:
        number(field, *value == "true" ? 1 : 0);
        break;
      case Type::kTextArray:
        for (const std::string& item : ArrayItems(*value)) AppendBytes(field, item, &out);
        break;
      default:
        AppendBytes(field, *value, &out);
    }
  }
  return out;
}

std::vector<RandomCase::Sent> RandomCase::NextBatch() {
  std::vector<Sent> batch;
  const int size = std::min(left_, 1 + dice_.Pick(150));
  left_ -= size;
  // What is sent of a stream within a batch has rising versions; a batch may begin with late or
  // forked ones.
  std::map<int, int64_t> last;
  const bool snapshots = SnapshotType() >= 0;
  int64_t strange_version = 1 + dice_.Pick(5);
  for (int i = 0; i < size; ++i) {
    const int stream = dice_.Pick(streams_);
    if (schema_.owned && dice_.Chance(5)) {
      // An event of another aggregate that says it is this row.
      batch.push_back(MakeEvent(stream, strange_version, /*stranger=*/true));
      strange_version += dice_.Pick(2);
      continue;
    }
    int64_t& newest = newest_[static_cast<size_t>(stream)];
    int64_t version = newest + 1 + (dice_.Chance(10) ? dice_.Pick(3) : 0);
    if (newest > 0 && dice_.Chance(20)) version = 1 + dice_.Pick(static_cast<int>(newest));
    if (last.contains(stream)) version = std::max(version, last[stream]);
    const bool snapshot = snapshots && dice_.Chance(25);
    // Of one version the snapshot comes first.
    if (snapshot && last.contains(stream) && version == last[stream]) ++version;
    last[stream] = version;
    newest = std::max(newest, version);
    batch.push_back(MakeEvent(stream, version, /*stranger=*/false, snapshot));
  }
  return batch;
}

std::vector<std::string> RandomCase::Expected() const {
  std::vector<std::string> lines;
  for (const auto& [key, row] : naive_.rows()) {
    if (row.deleted && !schema_.soft) continue;
    std::string line = key;
    for (const auto& value : row.values) line += "|" + value.value_or("~");
    lines.push_back(line + fmt::format("|{}|{}", row.deleted, row.version));
  }
  return lines;
}

std::string RandomCase::CountQuery() const {
  return fmt::format("SELECT bucket, d FROM {}_count", schema_.Table());
}

std::vector<std::string> RandomCase::ExpectedCounts() const {
  std::vector<std::string> lines;
  for (const auto& [bucket, sum] : counted_) lines.push_back(fmt::format("{}|{}", bucket, sum));
  return lines;
}

}  // namespace lockstep::projections
